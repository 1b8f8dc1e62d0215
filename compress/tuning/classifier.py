"""A classifier, single or fused, as something to train."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compress.backbones.registry import preprocessor
from compress.data.preprocessing import ImagePreprocessing
from compress.placing import to_device
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.augmentation import image_augmentation
from compress.tuning.batches import MakeInputs, TrainingBatch
from compress.tuning.freezing import set_training
from compress.tuning.head_dropout import head_dropout
from compress.tuning.inputs import PreparedInputs
from compress.tuning.learner import Learner
from compress.tuning.losses import ExtraLoss
from compress.tuning.objective import Objective
from compress.tuning.optimizer import build_optimizer
from compress.tuning.options import Tune
from compress.tuning.trunk_outputs import TrunkOutputs
from compress.tuning.validation import Score, Validation


class ClassifierLearner(Learner):
    """See ``Learner``.

    Args:
        model: what is trained.
        options: see ``Tune``.
        device: where it is.
        frozen: parts that stay as they are.
        only: kinds of modules that alone are trained; none for all that is not frozen.
        teacher: a model whose predictions are learned too, or None.
        extra_losses: losses of other stages.
        trunk: see ``Objective``.
    """

    def __init__(
        self,
        model: Transformer,
        options: Tune,
        device: torch.device,
        *,
        frozen: list[nn.Module],
        only: tuple[type[nn.Module], ...] = (),
        teacher: Transformer | None = None,
        extra_losses: tuple[ExtraLoss, ...] = (),
        trunk: TrunkOutputs | None = None,
    ) -> None:
        self.weights = self.model = model
        self.objective = Objective(model, options, extra_losses, trunk)
        self.trunk, self.extra_losses = trunk, extra_losses
        self.options, self.device, self.frozen, self.only = options, device, frozen, only
        self.teacher = teacher if options.distill else None
        self.head_dropout = head_dropout(options)

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW."""
        return build_optimizer(self.model, self.options)

    def prepare(self, step: int, steps: int) -> None:
        """The schedules of the other stages' losses."""
        for extra in self.extra_losses:
            extra.prepare(self.model, step, steps)

    def stepped(self) -> None:
        """The other stages' losses follow."""
        for extra in self.extra_losses:
            extra.stepped(self.model)

    def make_inputs(self) -> MakeInputs:
        """The model's own preprocessing and the augmentation of images, or what the trunk gave."""
        if self.trunk is not None:
            return self.trunk.inputs
        spec = self.model.config.preprocessing
        augment = image_augmentation(self.options, spec) if isinstance(spec, ImagePreprocessing) else None
        return PreparedInputs(preprocessor(self.model), augment)

    def losses(self, objective: nn.Module, batch: TrainingBatch, step: int, steps: int) -> dict[str, Tensor]:
        """See ``Objective``."""
        inputs = to_device(batch.inputs, self.device)
        gates = self.head_dropout.gates(self.model, batch.share)
        if gates is not None:
            gates = [None if gate is None else gate.to(self.device) for gate in gates]
        teacher_logits = None
        if self.teacher is not None:
            with torch.no_grad():
                teacher_logits = self.teacher(inputs)
        return objective(
            inputs,
            batch.labels.to(self.device),
            batch.weights.to(self.device),
            gates=gates,
            teacher_logits=teacher_logits,
            step=step,
            steps=steps,
        )

    def set_training(self) -> None:
        """Frozen parts neither learn nor drop anything."""
        set_training(self.model, self.frozen, self.only)

    def evaluate(self, validation: Validation, runtime: Runtime) -> Score:
        """Measure the model."""
        return validation.measure(self.model.eval(), runtime)
