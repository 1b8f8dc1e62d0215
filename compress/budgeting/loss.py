"""The losses of budgets, and the schedules that a training step follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from compress.attention.decision import Decision
from compress.attention.head_chooser import HeadChooser
from compress.budgeting.options import Budget
from compress.budgeting.schedules import entropy_coefficient, gating, head_temperature
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.model import Transformer
from compress.tuning.losses import ExtraLoss, StepOutputs


@dataclass(frozen=True)
class BudgetLoss(ExtraLoss):
    """``λ_b·(max(0, s_min − s)² + max(0, s − s_max)²) + λ_e(t)·H(p)``, mean over layers and streams.

    H(p) is in nats. The coefficients come from the options.

    Source: BudgetFormer, arXiv 2604.22583.
    """

    trains: ClassVar[tuple[type[nn.Module], ...]] = (HeadChooser,)
    options: Budget

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        """Set gates and temperature of the step, and let the predictors decide."""
        options, progress = self.options, _progress(step, steps)
        for _, attention in budgeted_attentions(model):
            attention.limit = None
            attention.gating = gating(progress, options.soft)
            attention.temperature = head_temperature(
                progress, options.soft, options.head_temperature_start, options.head_temperature
            )

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """``budget`` and ``entropy``, ``(b,)`` each; a term without weight or without anything to learn is left out."""
        options = self.options
        found = {}
        if options.budget_weight and options.fixed is None:
            found["budget"] = options.budget_weight * _mean(outputs, self._excess)
        if options.entropy_weight and options.choice == "learned":
            coefficient = entropy_coefficient(_progress(outputs.step, outputs.steps), options.entropy_weight)
            found["entropy"] = coefficient * _mean(outputs, lambda decision: entropy(decision.shares))
        return found

    def readings(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """Mean budget s and its deviation between inputs."""
        budgets = _mean(outputs, lambda decision: decision.budget.detach())
        return {"s": budgets, "s_deviation": budgets.std(correction=0)}

    def _excess(self, decision: Decision) -> Tensor:
        below = (self.options.min - decision.budget).clamp(min=0)
        above = (decision.budget - self.options.max).clamp(min=0)
        return below.square() + above.square()


def entropy(shares: Tensor) -> Tensor:
    """``H(p)`` in nats, ``(R,)``, of shares ``(R, slots)``; heads without any share count 0."""
    return torch.special.entr(shares.clamp(min=torch.finfo(shares.dtype).tiny)).sum(-1)


def _progress(step: int, steps: int) -> float:
    return step / max(steps - 1, 1)


def _mean(outputs: StepOutputs, value: Callable[[Decision], Tensor]) -> Tensor:
    """Mean over layers and streams of a value of every row, ``(b,)``."""
    inputs = len(outputs.labels)
    return torch.stack([value(decision).view(-1, inputs).mean(0) for decision in _decisions(outputs)]).mean(0)


def _decisions(outputs: StepOutputs) -> Iterator[Decision]:
    usage = outputs.model.usage
    for decision in () if usage is None else usage.decisions:
        if decision is not None:
            yield decision
