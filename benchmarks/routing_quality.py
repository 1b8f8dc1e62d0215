"""What routing costs in accuracy: the comparison that the benchmarks on MiniLM and on Fashion-MNIST share.

Every model starts from the same fine-tuned one and is trained alike, once per seed: the dense model, the routed one,
one whose tokens are ranked by a fixed random vector, and models without their least important blocks, one with at most
and one with at least the FLOPs of the routed model. Every step is kept in the work folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from minilm import is_done

import compress
from compress.data.base import Dataset
from compress.data.labels import align_labels
from compress.inference.forward import answers
from compress.routing.blocks import every_block, removal_costs
from compress.runtime import Runtime
from compress.transformer.combine import combine_logits
from compress.transformer.config import Structure
from compress.transformer.cost import count_cost
from compress.transformer.executed_flops import FlopMeter
from compress.transformer.model import Transformer
from compress.tuning.options import Training, as_tune

RUNTIME = Runtime(device="cpu", batch_size=64)
DENSE, ROUTED, RANDOM, SHALLOW = "dense", "routed", "random router", "depth-pruned"
DEPTHS = ("depth", "num_hidden_layers", "n_layers")
RESAMPLES = 2000


@dataclass(frozen=True)
class Measured:
    """One model on the test set.

    Attributes:
        right: ``(N,)`` which samples it classifies correctly.
        flops: executed FLOPs per input, mean.
    """

    right: np.ndarray
    flops: float


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        start: the artifact that every model starts from.
        work: folder for the models.
        train, test: labelled data.
        routing: capacity, choice, part and blocks of the routed model.
        training: the same for all.
    """

    start: Path
    work: Path
    train: Dataset
    test: Dataset
    routing: Mapping[str, object]
    training: Mapping[str, object]

    def run(self, seeds: Sequence[int], baseline_seeds: int) -> dict[str, list[Measured]]:
        """Train and measure; per kind of model one entry per seed, of baselines for the first seeds only."""
        found: dict[str, list[Measured]] = {}
        for number, seed in enumerate(seeds):
            for kind in (DENSE, ROUTED):
                found.setdefault(kind, []).append(self._measured(kind, seed))
            if number < baseline_seeds:
                found.setdefault(RANDOM, []).append(self._measured(RANDOM, seed))
                for removed in self._removed(found[DENSE][0].flops, found[ROUTED][0].flops):
                    kind = f"{SHALLOW}, {len(removed)} fewer"
                    found.setdefault(kind, []).append(self._measured(kind, seed, removed))
        return found

    def _measured(self, kind: str, seed: int, removed: Sequence[int] = ()) -> Measured:
        out = self.work / f"{kind.replace(' ', '-').replace(',', '')}-{seed}"
        if not is_done(out):
            self._train(kind, seed, removed, out)
        return measured(compress.load(out), self.test)

    def _train(self, kind: str, seed: int, removed: Sequence[int], out: Path) -> None:
        training = Training.model_validate({**self.training, "seed": seed})
        if kind in (ROUTED, RANDOM):
            choice = {"choice": "random"} if kind == RANDOM else {}
            options = compress.Route.model_validate({**training.model_dump(), **self.routing, **choice})
            compress.route(self.start, out, data=self.train, teacher=self.start, options=options, runtime=RUNTIME)
        else:
            model = without_blocks(compress.load(self.start), removed) if removed else self.start
            compress.tune(model, out, data=self.train, teacher=self.start, options=as_tune(training), runtime=RUNTIME)

    def _removed(self, dense: float, routed: float) -> list[tuple[int, ...]]:
        """The blocks of the two depth-pruned models: nearest in FLOPs above and below the routed one."""
        model = compress.load(self.start)
        labelled = align_labels(self.train, model.labels)
        costs = removal_costs(model, labelled, RUNTIME)
        order = sorted(range(len(costs) - 1), key=lambda block: (costs[block], block))
        layers = count_cost(model).layers
        saved = (dense - routed) / dense * sum(layer.total for layer in layers) / layers[0].total
        counts = sorted({max(1, int(saved)), -int(-saved // 1)})
        return [tuple(sorted(order[:count])) for count in counts]


def without_blocks(model: Transformer, removed: Sequence[int]) -> Transformer:
    """The model with fewer layers, which saves and loads as a smaller one of its family."""
    kept = [layer for index, layer in enumerate(model.layers) if index not in removed]
    arguments = dict(model.config.backbone.arguments)
    name = next((key for key in DEPTHS if key in arguments), DEPTHS[0])
    backbone = model.config.backbone.model_copy(update={"arguments": {**arguments, name: len(kept)}})
    structure = Structure.original(tuple(layer.attention.original_heads for layer in kept))
    config = model.config.model_copy(update={"backbone": backbone, "structure": structure})
    return Transformer(model.stem, kept, model.head, config=config, files=model.files).eval()


def measured(model: Transformer, test: Dataset) -> Measured:
    """Which samples ``model`` classifies correctly, and what it executed."""
    test = align_labels(test, model.labels)
    meter, total, right = FlopMeter(model), 0.0, list[torch.Tensor]()
    for batch in answers(model, model, test, RUNTIME, "test"):
        labels = torch.empty(0) if batch.labels is None else batch.labels
        right.append(combine_logits(batch.logits).argmax(1) == labels)
        total += float(meter.executed(batch.usage[0], batch.lengths or [None] * len(batch.ids)).total.sum())
    return Measured(torch.cat(right).numpy(), total / len(test))


def paired(own: Sequence[Measured], dense: Sequence[Measured], seed: int = 0) -> tuple[float, float, float]:
    """Mean difference in accuracy over seeds and samples, points, and the 95 % interval of resampled samples."""
    differences = np.stack([a.right.astype(float) - b.right for a, b in zip(own, dense, strict=False)]).mean(0)
    draws = np.random.default_rng(seed).integers(len(differences), size=(RESAMPLES, len(differences)))
    low, high = np.quantile(differences[draws].mean(1), (0.025, 0.975))
    return 100 * differences.mean(), 100 * low, 100 * high


def show(found: Mapping[str, Sequence[Measured]], target: float = -0.5) -> None:
    """The table, and whether the target is met."""
    dense = found[DENSE]
    click.echo(f"{'':26}{'seeds':>6}{'accuracy':>10}{'FLOPs':>8}   difference to dense, points")
    for kind, models in found.items():
        accuracy = 100 * np.mean([own.right.mean() for own in models])
        flops = np.mean([own.flops for own in models]) / np.mean([own.flops for own in dense])
        mean, low, high = paired(models, dense)
        shown = "" if kind == DENSE else f"   {mean:+.2f} [{low:+.2f}, {high:+.2f}]"
        click.echo(f"{kind:26}{len(models):>6}{accuracy:>9.2f}%{flops:>8.3f}{shown}")
    mean, *_ = paired(found[ROUTED], dense)
    click.echo(f"routed: {mean:+.2f} points over {len(dense)} seeds, target at least {target}")


def routing_of(
    model: Transformer, capacity: float, part: str, choice: str, blocks: Sequence[int] = ()
) -> dict[str, object]:
    """The options of the routed model: the given blocks, or every second one."""
    chosen = tuple(blocks) or every_block(2, len(model.layers))
    return {"capacity": (capacity,), "part": part, "choice": choice, "blocks": chosen}


def quiet_threads(threads: int) -> None:
    """Use so many cores."""
    torch.set_num_threads(threads)
