"""Training a classifier in place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from compress.data.base import Dataset
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.classifier import ClassifierLearner
from compress.tuning.engine import machine
from compress.tuning.freezing import all_but, frozen_parts, training_mode, without_loss
from compress.tuning.loop import Loop
from compress.tuning.losses import ExtraLoss
from compress.tuning.options import Freeze, Tune
from compress.tuning.state import Progress
from compress.tuning.trunk_outputs import TrunkOutputs
from compress.tuning.validation import Validation


@dataclass(frozen=True)
class Task:
    """What a model learns, and from what.

    Attributes:
        dataset: labelled, classes numbered as the model's.
        freeze: see ``frozen_parts``.
        branch_layer: the first layer that is not of the trunk.
        only: kinds of modules that alone are trained; none for everything that ``freeze`` leaves.
        validation: what the best checkpoint is chosen on; None takes the last.
        teacher: a model with the same inputs and labels, or None.
        extra_losses: losses of other stages.
        trunk: what the frozen trunk gives for the data, so that it need not run; None runs it.
    """

    dataset: Dataset
    freeze: Freeze = "none"
    branch_layer: int = 0
    only: tuple[type[nn.Module], ...] = ()
    validation: Validation | None = None
    teacher: Transformer | None = None
    extra_losses: tuple[ExtraLoss, ...] = ()
    trunk: TrunkOutputs | None = None


def train(
    model: Transformer,
    task: Task,
    options: Tune,
    runtime: Runtime,
    *,
    folder: Path,
    label: str = "tune",
    tensorboard: Path | None = None,
) -> Progress:
    """Train ``model`` in place; it ends in evaluation mode, with its best weights where there is a validation set.

    The result is a function of the arguments other than ``folder``: neither interruptions nor the number of workers
    change it, and the number of processes only its rounding.

    Args:
        model: float32 weights.
        task: what is learned.
        options: see ``Tune``.
        runtime: device and number format of the forward passes.
        folder: where the log and the resumable state go; a training that was interrupted there goes on.
        label: title of the progress bar.
        tensorboard: folder for TensorBoard's event files.

    Raises:
        KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.
        ModelError: a loss is not finite; names step, batch and the place in the model.
        CompressError: data, state or options that cannot be used.
    """
    frozen = all_but(model, task.only) if task.only else frozen_parts(model, task.freeze, task.branch_layer)
    frozen += without_loss(model, task.extra_losses)
    with (
        machine(runtime) as place,
        training_mode(model, frozen, task.only),
        recomputing(model, options.gradient_checkpointing),
    ):
        model.to(place.device)
        if task.teacher is not None:
            task.teacher.to(place.device).eval()
        learner = ClassifierLearner(
            model,
            options,
            place.device,
            frozen=frozen,
            only=task.only,
            teacher=task.teacher,
            extra_losses=task.extra_losses,
            trunk=task.trunk,
        )
        loop = Loop(learner, task.trunk or task.dataset, task.validation, options, runtime, place, folder)
        return loop.train(label, tensorboard)


@contextlib.contextmanager
def recomputing(model: Transformer, wanted: bool) -> Iterator[None]:
    """Within the block the model keeps no activations inside its layers, if ``wanted``."""
    before, model.recompute = model.recompute, wanted
    try:
        yield
    finally:
        model.recompute = before
