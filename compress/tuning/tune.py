"""The ``tune`` stage: a model, or every member of a set, trained on labelled data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from compress.artifact.folder import check_target
from compress.artifact.manifest import read_manifest
from compress.backbones.source import ModelSource
from compress.data.base import Dataset, given_dataset
from compress.data.reference import image_folders
from compress.distributed import processes
from compress.opening import artifact_folder, open_model
from compress.parent import parent_of
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.job import Job, Tuned
from compress.tuning.log import require_tensorboard
from compress.tuning.losses import ExtraLoss
from compress.tuning.members import tune_members
from compress.tuning.metric import checkpoint_metric
from compress.tuning.one import tune_one
from compress.tuning.options import Tune
from compress.tuning.pair import tune_pair
from compress.tuning.starting import starting_model
from compress.tuning.state import remove_states


@dataclass(frozen=True)
class TuneResult:
    """What ``tune`` wrote.

    Attributes:
        folder: the artifact: one model, or a set of members.
        models: one entry per model that was trained.
    """

    folder: Path
    models: tuple[Tuned, ...]

    def table(self) -> str:
        """A short text for the terminal."""
        lines = [f"{model.name}: {model.outcome()}" for model in self.models]
        return "\n".join([*lines, f"written to {self.folder}"])

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**asdict(self), "folder": str(self.folder)}


def tune(
    model: str | Path | ModelSource | Transformer,
    out: str | Path,
    *,
    data: str | Dataset,
    validation: str | Dataset | None = None,
    ood: Mapping[str, str | Dataset] | None = None,
    teacher: str | Path | Transformer | None = None,
    options: Tune | None = None,
    runtime: Runtime | None = None,
    extra_losses: Sequence[ExtraLoss] = (),
    tensorboard: str | Path | None = None,
    overwrite: bool = False,
) -> TuneResult:
    """Train a model on labelled data.

    A single model learns by cross-entropy. Of a fused model every member does, and the losses are averaged. Of a set
    of members each is trained apart, with its own data order and seed; a trunk that they share stays as it is, so that
    they can still be fused around it. An interrupted call goes on from its last checkpoint when it is repeated, and
    gives the same result.

    Args:
        model: an artifact, the folder of members that ``prune`` or ``tune`` wrote, or any reference of ``open_model``.
        out: folder to write; beside it lies the state of a call that was interrupted.
        data: labelled training set.
        validation: labelled set on which the best checkpoint is chosen; without it the last one is taken.
        ood: foreign sets, by name, for ``options.metric`` such as ``ood/NAME/auroc``.
        teacher: a model with the same labels and preprocessing whose predictions are learned too.
        options: see ``Tune``.
        runtime: device and number format (``bfloat16`` is autocast); its batch size is not used.
        extra_losses: losses of other stages.
        tensorboard: folder for TensorBoard's event files.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a bad option, model, data set or place, or a loss that is not finite; nothing is written.
        KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.
    """
    options, runtime, out = options or Tune(), runtime or Runtime(), Path(out)
    foreign = {name: given_dataset(given) for name, given in (ood or {}).items()}
    metric = checkpoint_metric(options, foreign, validation is not None)
    if tensorboard is not None:
        require_tensorboard()
    team = processes(runtime.torch_device())
    job = Job(
        out=out,
        dataset=given_dataset(data),
        options=options,
        runtime=runtime,
        team=team,
        validation=_optional(validation),
        ood=foreign,
        metric=metric,
        teacher=None if teacher is None else open_model(teacher),
        extra_losses=tuple(extra_losses),
        tensorboard=None if tensorboard is None else Path(tensorboard),
        overwrite=overwrite,
    )
    return TuneResult(out, _tune_all(job, model))


def _tune_all(job: Job, reference: str | Path | ModelSource | Transformer) -> tuple[Tuned, ...]:
    job.team.on_main(
        lambda: check_target(job.out, overwrite=job.overwrite, inputs=(reference,), outside=image_folders(job.dataset))
    )
    if job.options.objective == "captions":
        models: tuple[Tuned, ...] = (tune_pair(job, reference),)
        remove_states(job.out)
        return models
    folder = artifact_folder(reference) if isinstance(reference, (str, Path)) else None
    if folder is not None and read_manifest(folder).kind == "members":
        models = tune_members(job, folder)
    else:
        models = (_tune_single(job, reference),)
    job.team.on_main(lambda: remove_states(job.out))
    return models


def _tune_single(job: Job, reference: str | Path | ModelSource | Transformer) -> Tuned:
    """One model, single or fused, to one artifact."""
    options = job.options
    model = starting_model(reference, job.dataset, from_scratch=options.from_scratch, seed=options.seed)
    branch_layer = model.structure.branch_layer if model.structure.members > 1 else 0
    resolved = options.model_copy(update={"freeze": options.freeze or "none"})
    return tune_one(job, model, parent_of(reference, model), resolved, branch_layer)


def _optional(data: str | Dataset | None) -> Dataset | None:
    return None if data is None else given_dataset(data)
