"""The ``route`` stage: a model in, the same with routers that were trained out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compress.artifact.folder import check_target
from compress.backbones.source import ModelSource
from compress.data.base import Dataset, given_dataset
from compress.data.reference import image_folders
from compress.distributed import Processes, processes
from compress.errors import ModelError, UsageError
from compress.opening import open_model
from compress.parent import Parent, parent_of
from compress.routing.blocks import chosen_blocks
from compress.routing.loss import RoutingLoss
from compress.routing.observe import BlockRoutes, fit_thresholds, observe
from compress.routing.options import Route
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.router import Router
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig
from compress.tuning.job import Job, Tuned, fitting
from compress.tuning.log import require_tensorboard
from compress.tuning.metric import checkpoint_metric
from compress.tuning.one import tune_one
from compress.tuning.options import as_tune
from compress.tuning.starting import starting_model
from compress.tuning.state import remove_states

log = logging.getLogger(__name__)
MISSED = 0.01
"""Distance from the capacity beyond which a warning says that token choice lets another share pass."""


@dataclass(frozen=True)
class RouteResult:
    """What ``route`` wrote.

    Attributes:
        folder: the artifact.
        capacity: the share of the tokens that passes, per block.
        blocks: what each routed block does on the training data.
        tuned: how it was trained.
    """

    folder: Path
    capacity: tuple[float, ...]
    blocks: tuple[BlockRoutes, ...]
    tuned: Tuned

    def table(self) -> str:
        """A short text for the terminal."""
        lines = [
            f"block {routes.block}: capacity {capacity:g}, kept {routes.kept:.3f}, entropy {routes.entropy:.3f} bits"
            for routes, capacity in zip(self.blocks, self.capacity, strict=True)
        ]
        return "\n".join([*lines, self.tuned.outcome(), f"written to {self.folder}"])

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**asdict(self), "folder": str(self.folder)}


def route(
    model: str | Path | ModelSource | Transformer,
    out: str | Path,
    *,
    data: str | Dataset,
    validation: str | Dataset | None = None,
    calibration: str | Dataset | None = None,
    ood: Mapping[str, str | Dataset] | None = None,
    teacher: str | Path | Transformer | None = None,
    options: Route | None = None,
    runtime: Runtime | None = None,
    tensorboard: str | Path | None = None,
    overwrite: bool = False,
) -> RouteResult:
    """Put routers in front of some blocks of a model and train it with them.

    The capacity falls from 1.0, the unchanged model, to its target. An interrupted call goes on when it is repeated.

    Args:
        model: one model, single or fused, with or without budgets.
        out: folder to write.
        data: labelled training set.
        validation: labelled set on which the best checkpoint is chosen; measured at the target capacity.
        calibration: labelled set on which ``blocks: auto`` is decided; the training set by default.
        ood, teacher, tensorboard: as in ``tune``.
        options: see ``Route``.
        runtime: device and number format; the batch size is that of passes without training.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a bad option, model, data set or place; a causal model; nothing is written.
        KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.
    """
    options, runtime, out = options or Route(), runtime or Runtime(), Path(out)
    foreign = {name: given_dataset(given) for name, given in (ood or {}).items()}
    metric = checkpoint_metric(options, foreign, validation is not None)
    if tensorboard is not None:
        require_tensorboard()
    team = _team(options, runtime)
    team.on_main(lambda: check_target(out, overwrite=overwrite, inputs=(model,), outside=image_folders(data)))
    dataset = given_dataset(data)
    routed, resolved, parent = _routed_start(model, dataset, calibration, options, runtime)
    job = Job(
        out=out,
        dataset=dataset,
        options=as_tune(resolved),
        runtime=runtime,
        team=team,
        validation=None if validation is None else given_dataset(validation),
        ood=foreign,
        metric=metric,
        teacher=None if teacher is None else open_model(teacher),
        extra_losses=(RoutingLoss(options.anneal, options.capacity_weight),),
        only=(Router,) if options.train == "router" else (),
        stage="route",
        stage_options=resolved,
        tensorboard=None if tensorboard is None else Path(tensorboard),
        overwrite=overwrite,
    )
    return _trained(job, routed, parent)


def _team(options: Route, runtime: Runtime) -> Processes:
    """The processes of this command; token choice is refused to several."""
    team = processes(runtime.torch_device())
    if team.count > 1 and options.choice == "token":
        raise UsageError(
            f"each of {team.count} processes would learn other thresholds, from its own part of the inputs",
            where="--choice token",
            fix="use expert, or start one process",
        )
    return team


def _trained(job: Job, routed: Transformer, parent: Parent) -> RouteResult:
    """Train, look at the routers, and write."""
    seen: list[BlockRoutes] = []

    def finish(trained: Transformer, tuned: Tuned) -> dict[str, Any]:
        seen.extend(_observed(trained, job.dataset, job.runtime))
        return {"routes": [asdict(routes) for routes in seen]}

    tuned = tune_one(job, routed, parent, job.options, finish=finish)
    job.team.on_main(lambda: remove_states(job.out))
    capacity = tuple(layer.router.capacity for _, layer in routed_layers(routed))
    return RouteResult(job.out, capacity, tuple(seen), tuned)


def _routed_start(
    reference: str | Path | ModelSource | Transformer,
    dataset: Dataset,
    calibration: str | Dataset | None,
    options: Route,
    runtime: Runtime,
) -> tuple[Transformer, Route, Parent]:
    """The model with fresh routers, the options with the chosen blocks, and what it starts from."""
    start, parent = _start(reference, dataset, options)
    start.to(runtime.torch_device())
    measured_on = fitting(dataset if calibration is None else given_dataset(calibration), start)
    blocks = chosen_blocks(start, options, measured_on, runtime)
    config = RoutingConfig(blocks=blocks, capacity=options.capacity, choice=options.choice, part=options.part)
    return with_routers(start, config), options.model_copy(update={"blocks": blocks}), parent


def _observed(model: Transformer, dataset: Dataset, runtime: Runtime) -> tuple[BlockRoutes, ...]:
    """Fit the thresholds; what the routers then do on the training data. What is wrong with one is warned about."""
    dataset, layers = fitting(dataset, model), dict(routed_layers(model))
    fit_thresholds(model.to(runtime.torch_device()), dataset, runtime)
    found = observe(model, dataset, runtime)
    model.to("cpu")
    for routes in found:
        router = layers[routes.block].router
        if router.choice == "token" and abs(routes.kept - router.capacity) > MISSED:
            log.warning(
                "%.3f of the tokens pass block %d, not its capacity %g: no threshold comes nearer (equal scores pass "
                "together, and one token of every input does)",
                routes.kept,
                routes.block,
                router.capacity,
            )
        if routes.collapse is not None:
            log.warning("the router of block %d has collapsed: %s", routes.block, routes.collapse)
    return found


def _start(
    reference: str | Path | ModelSource | Transformer, dataset: Dataset, options: Route
) -> tuple[Transformer, Parent]:
    """A model without routers that no caller holds, and what it is."""
    model = starting_model(reference, dataset, from_scratch=False, seed=options.seed)
    if model.config.routing is not None:
        raise ModelError(
            "the model has routers already", where=str(reference)[:80], fix="route the model that it was made from"
        )
    parent = parent_of(reference, model)
    # A threshold of abstention belongs to the exact model that it was fitted with.
    model.config = model.config.model_copy(update={"abstention": None})
    return model, parent
