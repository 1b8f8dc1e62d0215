"""One call of ``tune``, checked and resolved: what is the same for every model that it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.provenance import Provenance, installed_versions
from compress.data.base import Dataset, require_kind
from compress.data.labels import align_labels
from compress.distributed import Processes
from compress.errors import ModelError, UsageError
from compress.evaluation.metrics.registry import Metric
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.log import LOG_NAME, last_loss
from compress.tuning.losses import ExtraLoss
from compress.tuning.options import NO_EFFECT_ON_RESULT, Training, Tune
from compress.tuning.state import identity
from compress.tuning.training import Task, train
from compress.tuning.trunk_outputs import TrunkOutputs, stored_trunk_outputs
from compress.tuning.validation import Validation


@dataclass(frozen=True)
class Tuned:
    """One model that was trained.

    Attributes:
        name: ``model``, or the member's name.
        steps: optimizer steps that were made.
        metric: what the best checkpoint was chosen by; None without a validation set.
        before, after: its value before training, and of the weights that were kept.
        best_step: the step whose weights were kept.
        loss: the training loss at the end, see ``last_loss``; None when no step was made.
    """

    name: str
    steps: int
    metric: str | None = None
    before: float | None = None
    after: float | None = None
    best_step: int | None = None
    loss: float | None = None

    def outcome(self) -> str:
        """The training in a few words: what the validation set says, or the loss where there is none."""
        text = f"{self.steps} steps"
        if self.before is not None and self.after is not None:
            return f"{text}; {self.metric} {self.before:.4f} before, {self.after:.4f} after step {self.best_step}"
        return text if self.loss is None else f"{text}; training loss {self.loss:.4f}"


@dataclass(frozen=True)
class Job:
    """Data and settings.

    Attributes:
        out: the folder to write.
        dataset: labelled training data, as they were opened.
        options, runtime: as given.
        team: the processes that work on it.
        validation: labelled data, or None.
        ood: sets for the metrics of detection.
        metric: what the best checkpoint is chosen by; None without validation.
        teacher: a model whose predictions are learned too, or None.
        extra_losses: losses of other stages.
        only: see ``Task``.
        stage: name of the stage that trains.
        stage_options: its own options, where they are more than the training's.
        tensorboard: folder of event files, or None.
        overwrite: replace an artifact that is there.
    """

    out: Path
    dataset: Dataset
    options: Tune
    runtime: Runtime
    team: Processes
    validation: Dataset | None = None
    ood: Mapping[str, Dataset] = field(default_factory=dict)
    metric: Metric | None = None
    teacher: Transformer | None = None
    extra_losses: tuple[ExtraLoss, ...] = ()
    only: tuple[type[nn.Module], ...] = ()
    stage: str = "tune"
    stage_options: Training | None = None
    tensorboard: Path | None = None
    overwrite: bool = False

    def identity(self, parent: str) -> str:
        """What tells this run's state from that of any other run.

        Args:
            parent: hash of the model or the set that is tuned.
        """
        return identity(
            parent=parent,
            options=self._recorded(self.options),
            data=self.data_fingerprints(),
            dtype=self.runtime.dtype,
            device=self.runtime.torch_device().type,
            processes=self.team.count,
            versions=installed_versions(),
        )

    def data_fingerprints(self) -> dict[str, str]:
        """Fingerprints of everything that is learned from or chosen by, by role."""
        sets = {"train": self.dataset, "validation": self.validation}
        sets |= {f"ood/{name}": dataset for name, dataset in self.ood.items()}
        found = {role: dataset.fingerprint for role, dataset in sets.items() if dataset is not None}
        return found | ({} if self.teacher is None else {"teacher": model_fingerprint(self.teacher)})

    def train(
        self,
        model: Transformer,
        folder: Path,
        *,
        name: str,
        options: Tune,
        branch_layer: int,
        trunk_folder: Path | None = None,
    ) -> Tuned:
        """Train ``model`` in place; its state and log lie in ``folder``.

        Args:
            model: the model, with any number format; it keeps it.
            folder: see ``train``.
            name: of the model, for messages and the result.
            options: this job's, with the model's own seed.
            branch_layer: the first layer that is not of the trunk.
            trunk_folder: where outputs of the trunk are kept if the options say so; by default ``folder``.
        """
        dtype = next(model.parameters()).dtype
        tensorboard = self.tensorboard if name == "model" or self.tensorboard is None else self.tensorboard / name
        task = self._task(model.float(), options, branch_layer)
        if options.keep_trunk_outputs:
            task = replace(task, trunk=self._trunk(model, task, trunk_folder or folder))
        progress = train(
            model,
            task,
            options,
            self.runtime,
            folder=folder,
            label=f"{self.stage} {name}",
            tensorboard=tensorboard,
        )
        model.to("cpu", dtype)
        # A threshold of abstention belongs to the weights that it was fitted with.
        model.config = model.config.model_copy(update={"abstention": None})
        metric = None if self.metric is None else self.metric.name
        loss = self.team.on_main(lambda: last_loss(folder / LOG_NAME))
        return Tuned(name, progress.step, metric, progress.first, progress.best, progress.best_step, loss)

    def _trunk(self, model: Transformer, task: Task, folder: Path) -> TrunkOutputs:
        """What the trunk gives for the data; raises ``UsageError`` where it changes in training."""
        options = self.options
        if task.freeze != "trunk":
            raise UsageError(
                "only outputs of a frozen trunk can be kept",
                where="--keep-trunk-outputs",
                fix="tune members that share a trunk (prune with --branch-layer), or freeze it",
            )
        if (
            task.teacher is not None
            or task.extra_losses
            or (options.head_dropout and options.head_dropout_from < task.branch_layer)
        ):
            raise UsageError(
                "a teacher and head dropout in the trunk need the trunk in every step",
                where="--keep-trunk-outputs",
                fix="leave it out, or set head_dropout_from to the branch layer",
            )
        model.to(self.runtime.torch_device())
        work = partial(stored_trunk_outputs, folder, model, task.branch_layer, task.dataset, self.runtime)
        self.team.on_main(lambda: len(work()))
        return work()

    def provenance(self, options: Tune, parents: tuple[str, ...], tuned: Tuned | None, **notes: Any) -> Provenance:
        """How a tuned model, or a set of them, was made."""
        measured = {} if tuned is None else asdict(tuned)
        for key in ("name", "loss"):  # the steps that a line of the log stands for differ after an interruption
            measured.pop(key, None)
        return Provenance(
            stage=self.stage,
            options=self._recorded(options),
            parents=parents,
            data_fingerprint=self.dataset.fingerprint,
            notes={**measured, **notes, "data": self.data_fingerprints()},
        )

    def _recorded(self, options: Tune) -> dict[str, Any]:
        """The options that the result depends on, as JSON values."""
        return (self.stage_options or options).model_dump(mode="json", exclude=set(NO_EFFECT_ON_RESULT))

    def _task(self, model: Transformer, options: Tune, branch_layer: int) -> Task:
        """The data in the order of the model's labels; raises ``CompressError`` when something does not fit."""
        if self.teacher is not None:
            check_teacher(self.teacher, model)
        validation = None
        if self.validation is not None and self.metric is not None:
            for foreign in self.ood.values():
                require_kind(foreign, model.config.preprocessing.kind)
            validation = Validation(fitting(self.validation, model), self.ood, self.metric)
        return Task(
            dataset=fitting(self.dataset, model),
            freeze=options.freeze or "none",
            branch_layer=branch_layer,
            validation=validation,
            teacher=self.teacher,
            extra_losses=self.extra_losses,
            only=self.only,
        )


def fitting(dataset: Dataset, model: Transformer) -> Dataset:
    """The data with their classes numbered as the model's; raises ``DataError`` when they cannot be."""
    require_kind(dataset, model.config.preprocessing.kind)
    return align_labels(dataset, model.labels)


def check_teacher(teacher: Transformer, student: Transformer) -> None:
    """Raise ``ModelError`` unless both read the same inputs and name the same classes in the same order."""
    for part in ("labels", "preprocessing"):
        if getattr(teacher.config, part) != getattr(student.config, part):
            raise ModelError(
                f"its {part} differ from the student's", where="--teacher", fix="choose a teacher of the same task"
            )
    if teacher.files != student.files:
        raise ModelError(
            "its tokenizer differs from the student's", where="--teacher", fix="choose a teacher of the same family"
        )
