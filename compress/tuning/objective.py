"""The model and its losses as one module, so that whatever wraps it for several processes sees all of the graph."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from compress.transformer.model import Gates, Transformer
from compress.transformer.parts import Inputs
from compress.tuning.losses import (
    ExtraLoss,
    StepOutputs,
    cross_entropy,
    distillation,
    mutual_information,
    total,
    weighted_sum,
)
from compress.tuning.options import Tune
from compress.tuning.trunk_outputs import TrunkOutputs


class Objective(nn.Module):
    """From a batch to its losses, each summed with the inputs' weights.

    Args:
        model: the model that is trained.
        options: label smoothing, share and temperature of the teacher, weight of the diversity.
        extra_losses: see ``ExtraLoss``.
        trunk: what the trunk gave for the inputs, which then are ``TrunkOutputs.inputs``; None runs the whole model.
    """

    def __init__(
        self,
        model: Transformer,
        options: Tune,
        extra_losses: Sequence[ExtraLoss] = (),
        trunk: TrunkOutputs | None = None,
    ) -> None:
        super().__init__()
        self.trunk = trunk
        self.model = model
        self.options = options
        self.extra_losses = tuple(extra_losses)

    def forward(
        self,
        inputs: Inputs,
        labels: Tensor,
        weights: Tensor,
        *,
        gates: Gates | None = None,
        teacher_logits: Tensor | None = None,
        step: int = 0,
        steps: int = 1,
    ) -> dict[str, Tensor]:
        """The losses by name, and what else the log shows; ``loss`` is the sum of the losses, the one to be lowered.

        Args:
            inputs: b inputs of the model.
            labels: ``(b,)``.
            weights: ``(b,)``, summing to 1 over all forward passes of a step and all processes.
            gates: per distinct layer the factors of its heads.
            teacher_logits: ``(b, K)``.
            step, steps: where training stands.
        """
        for extra in self.extra_losses:
            extra.prepare(self.model, step, steps)
        logits = self._members(inputs, gates).float()
        terms = self._own_terms(logits, labels, teacher_logits)
        outputs = StepOutputs(self.model, inputs, labels, logits, step, steps)
        readings: dict[str, Tensor] = {}
        for extra in self.extra_losses:
            terms |= extra.terms(outputs)
            readings |= extra.readings(outputs)
        summed = {name: weighted_sum(term, weights) for name, term in terms.items()}
        shown = summed | {name: weighted_sum(value, weights) for name, value in readings.items()}
        return {"loss": total(summed), **{name: value.detach() for name, value in shown.items()}}

    def _members(self, inputs: Inputs, gates: Gates | None) -> Tensor:
        if self.trunk is None or isinstance(inputs, Tensor):
            return self.model.members(inputs, gates=gates)
        hidden = self.trunk.entering(inputs)
        return self.model.classify(self.model.run_layers(hidden, start=self.trunk.steps, gates=gates))

    def _own_terms(self, logits: Tensor, labels: Tensor, teacher_logits: Tensor | None) -> dict[str, Tensor]:
        options = self.options
        share = 0.0 if teacher_logits is None else options.distill
        terms = {}
        if share < 1:
            terms["task"] = (1 - share) * cross_entropy(logits, labels, options.label_smoothing)
        if teacher_logits is not None and share:
            terms["teacher"] = share * distillation(logits, teacher_logits.float(), options.temperature)
        if options.diversity and len(logits) > 1:
            terms["diversity"] = -options.diversity * mutual_information(logits)
        return terms
