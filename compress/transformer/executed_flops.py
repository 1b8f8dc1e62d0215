"""The floating-point operations that a forward pass executed, input by input; 1 multiply-add = 2 FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.transformer.cost import Cost, attention_flops, count_cost, mlp_flops
from compress.transformer.model import Transformer
from compress.transformer.usage import Usage


@dataclass(frozen=True, eq=False)
class ExecutedFlops:
    """FLOPs of B inputs.

    Attributes:
        attention: ``(B,)`` float64, the attention sub-layers, predictors of budgets included.
        total: ``(B,)`` float64, the whole model, routers included.
    """

    attention: Tensor
    total: Tensor


class FlopMeter:
    """Counts for one model; what depends on an input's length alone is counted once.

    Args:
        model: the model.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self._full: dict[int | None, Cost] = {}

    def full(self, length: int | None) -> Cost:
        """The cost of an input of ``length`` tokens, or of the model's own size, when everything is executed."""
        if length not in self._full:
            self._full[length] = count_cost(self.model, length=length)
        return self._full[length]

    def executed(self, usage: Usage | None, lengths: Sequence[int | None]) -> ExecutedFlops:
        """FLOPs of the inputs of one pass.

        Args:
            usage: what the pass executed; None for everything.
            lengths: real tokens of each input; None stands for the model's own size. Padding is not counted.
        """
        full = [self.full(length) for length in lengths]
        if usage is None:
            attention = [cost.attention_flops for cost in full]
            return ExecutedFlops(_floats(attention), _floats([cost.flops for cost in full]))
        present, asking = _counts([cost.tokens for cost in full]), _counts([cost.asking for cost in full])
        in_attention = torch.zeros(len(full), dtype=torch.float64)
        beside = _floats([cost.stem + cost.head for cost in full])
        for step, index in enumerate(self.model.order):
            layer, streams = self.model.layers[index], full[0].layers[step].streams if full else 1
            heads, selection = usage.heads[step], usage.selections[step]
            ran = torch.tensor(layer.attention.slots) if heads is None or _dense(usage, step) else heads.cpu()
            # A row is computed in as many slots as the batch's longest one: what fills it up is paid for as well.
            computed = present if selection is None else present.clamp(max=selection.slots)
            asked = torch.minimum(computed, asking) if step == len(self.model.order) - 1 else computed
            in_attention += _all_streams(attention_flops(layer.attention, ran, computed, asked), streams, len(full))
            fed = asked if layer.skips_mlp else asking if step == len(self.model.order) - 1 else present
            beside += _all_streams(mlp_flops(layer, fed), streams, len(full))
            beside += streams * _floats([layer.selection_flops(cost.tokens) for cost in full])
        return ExecutedFlops(in_attention, in_attention + beside)


def executed_flops(model: Transformer, usage: Usage | None, lengths: Sequence[int | None]) -> ExecutedFlops:
    """FLOPs of the inputs of one pass through ``model``; see ``FlopMeter.executed``."""
    return FlopMeter(model).executed(usage, lengths)


def _dense(usage: Usage, step: int) -> bool:
    """Whether the attention of a step computed all heads of the largest group for every row."""
    decision = usage.decisions[step]
    return decision is not None and decision.dense


def _all_streams(flops: Tensor, streams: int, inputs: int) -> Tensor:
    """The sum over streams, ``(B,)``, of FLOPs that may be the same for all streams or inputs."""
    return flops.double().broadcast_to(streams, inputs).sum(0)


def _floats(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _counts(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)
