"""Moving all predictors by one number, so that a wanted share of the heads runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from compress.attention.budgeted import executed_heads
from compress.data.base import Dataset
from compress.errors import UsageError
from compress.inference.forward import answers
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.model import Transformer

PASSES = 7
"""Passes over the data; one more than shifts that are tried, as every shift is looked at."""
TOLERANCE = 0.002
WIDEST = 30.0
SLACK = 1e-9
"""Rounding of a share: a third of the heads is asked for as 0.3333333333."""


@dataclass(frozen=True)
class _Rows:
    """Budgets of many rows of one layer: ``logits (n,)`` of s and the heads ``counts (n,)`` there are."""

    logits: Tensor
    counts: Tensor

    def executed(self, shift: float) -> Tensor:
        """The executed share of every row if all logits were so much higher."""
        return executed_heads((self.logits + shift).sigmoid(), self.counts).double() / self.counts


def shift_predictors(model: Transformer, dataset: Dataset, runtime: Runtime, target: float) -> float:
    """Add one number to the logits of all budgets, so that the mean executed share k/H is ``target``.

    A layer's budgets change what the next ones see, so the number is found for the budgets as they are, and again for
    those that came of it, until they agree.

    Args:
        model: with budgets, in evaluation mode, where the runtime computes; changed in place.
        dataset: what the mean is over.
        runtime: device, number format, batch size.
        target: the share.

    Returns:
        What was added: of the numbers that were tried, the one that came nearest.

    Raises:
        UsageError: a share that no shift reaches.
    """
    check_reachable(model, target)
    total = best = 0.0
    nearest = float("inf")
    for left in reversed(range(PASSES)):
        layers = _collect(model, dataset, runtime)
        missed = abs(_mean_executed(layers, 0.0) - target)
        if missed < nearest:
            nearest, best = missed, total
        if missed <= TOLERANCE or not left:
            break
        step = _solve(layers, target)
        total += step
        _shift(model, step)
    if best != total:
        _shift(model, best - total)
    return best


def check_reachable(model: Transformer, target: float) -> None:
    """Raise ``UsageError`` for a share of the heads that is below one head per layer."""
    lowest = least_share(model)
    if target < lowest - SLACK:
        problem = f"a share of {target:g} is below one head per layer"
        enough = math.ceil((lowest - SLACK) * 1000) / 1000
        raise UsageError(problem, where="--calibrate-to", fix=f"choose {enough:.3f} or more")


def _shift(model: Transformer, logits: float) -> None:
    for _, attention in budgeted_attentions(model):
        attention.chooser.shift(logits)


def _solve(layers: list[_Rows], target: float) -> float:
    """The shift whose mean executed share is ``target``, by bisection."""
    low, high = -WIDEST, WIDEST
    for _ in range(50):
        middle = (low + high) / 2
        if _mean_executed(layers, middle) < target - SLACK:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _mean_executed(layers: list[_Rows], shift: float) -> float:
    return float(torch.stack([rows.executed(shift).mean() for rows in layers]).mean())


def least_share(model: Transformer) -> float:
    """The share that runs when every layer runs one head."""
    return fmean(fmean(1 / len(kept) for kept in model.layers[index].attention.kept_heads) for index in model.order)


def _collect(model: Transformer, dataset: Dataset, runtime: Runtime) -> list[_Rows]:
    """The budgets of every step on all samples."""
    logits: dict[int, list[Tensor]] = {}
    counts: dict[int, list[Tensor]] = {}
    for _ in answers(model, model, dataset, runtime, "calibrate"):
        for step, decision in enumerate(() if model.usage is None else model.usage.decisions):
            if decision is not None:
                attention = model.layers[model.order[step]].attention
                per_group = torch.tensor([len(kept) for kept in attention.kept_heads])
                logits.setdefault(step, []).append(decision.budget.double().logit(eps=1e-12).cpu())
                counts.setdefault(step, []).append(per_group.repeat_interleave(len(decision.budget) // len(per_group)))
    return [_Rows(torch.cat(logits[step]), torch.cat(counts[step])) for step in logits]
