"""What single inputs were given: heads, tokens and FLOPs of the passes that predicted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.evaluation.use_summary import HISTOGRAM_BINS, ShareSummary
from compress.transformer.executed_flops import ExecutedFlops, FlopMeter
from compress.transformer.model import Transformer
from compress.transformer.usage import Usage


@dataclass(frozen=True, eq=False)
class InputUse:
    """One row per input, on the CPU; N inputs, L layers in the order in which they run.

    Where several models or passes answer together, FLOPs are summed and shares are averaged.

    Attributes:
        flops: ``(N,)`` float64, of the whole model.
        attention_flops: ``(N,)`` float64, of the attention sub-layers.
        heads: ``(N, L)`` float32, the executed share k/H of a layer's kept heads, mean over streams; None when no
            layer has budgets, or models of unlike depth answer together.
        tokens: ``(N, L')`` float32, the share that passed each routed layer of the tokens that do not always pass, mean
            over streams; None without routers.
    """

    flops: Tensor
    attention_flops: Tensor
    heads: Tensor | None = None
    tokens: Tensor | None = None

    @property
    def budget(self) -> Tensor | None:
        """``(N,)``, an input's executed share of heads, mean over layers."""
        return None if self.heads is None else self.heads.double().mean(1)

    @property
    def kept_tokens(self) -> Tensor | None:
        """``(N,)``, an input's share of tokens that passed, mean over the routed layers."""
        return None if self.tokens is None else self.tokens.double().mean(1)


def joined_use(parts: Sequence[InputUse]) -> InputUse | None:
    """The rows of all parts one after the other; None for no part."""
    if not parts:
        return None
    return InputUse(
        torch.cat([part.flops for part in parts]),
        torch.cat([part.attention_flops for part in parts]),
        _joined([part.heads for part in parts]),
        _joined([part.tokens for part in parts]),
    )


class UseMeter:
    """Turns the usages of a prediction into rows.

    Args:
        models: the transformers that answer; passes run through all of them, again and again.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        self._models = models
        self._meters = [FlopMeter(model) for model in models]

    def measure(self, usages: Sequence[Usage | None], lengths: Sequence[int], inputs: int) -> InputUse | None:
        """Rows of one batch; None when everything was executed for every input.

        Args:
            usages: one per model and pass.
            lengths: real tokens of the inputs; empty for inputs of the model's own size.
            inputs: how many there are.
        """
        if not any(usages):
            return None
        sizes: list[int | None] = list(lengths) or [None] * inputs
        flops: list[ExecutedFlops] = []
        heads, tokens = [], []
        for number, usage in enumerate(usages):
            meter = self._meters[number % len(self._meters)]
            flops.append(meter.executed(usage, sizes))
            heads.append(head_shares(meter.model, usage, inputs))
            tokens.append(_token_shares(usage))
        return InputUse(
            sum((part.total for part in flops), torch.zeros(inputs, dtype=torch.float64)),
            sum((part.attention for part in flops), torch.zeros(inputs, dtype=torch.float64)),
            _averaged(heads),
            _averaged(tokens),
        )


def head_shares(model: Transformer, usage: Usage | None, inputs: int) -> Tensor | None:
    """The executed share k/H of every layer, ``(B, L)``, mean over streams; None when no layer has budgets."""
    if usage is None or all(step is None for step in usage.heads):
        return None
    shares = [torch.ones(inputs)] * len(usage.heads)
    for step, executed in enumerate(usage.heads):
        if executed is not None:
            kept = torch.tensor([len(heads) for heads in model.layers[model.order[step]].attention.kept_heads])
            shares[step] = (executed.cpu() / kept[:, None]).mean(0)
    return torch.stack(shares, dim=1)


def _token_shares(usage: Usage | None) -> Tensor | None:
    """The share that passed every routed layer, ``(B, L')``, mean over streams; 1 where all tokens always pass."""
    if usage is None:
        return None
    shares = []
    for tokens, selection in zip(usage.tokens, usage.selections, strict=True):
        if tokens is not None and selection is not None:
            routed, passed = selection.routed.sum(1), (selection.passed & selection.routed).sum(1)
            share = torch.where(routed > 0, passed / routed.clamp(min=1), 1.0)
            shares.append(share.cpu().view(len(tokens), -1).mean(0))
    return torch.stack(shares, dim=1) if shares else None


def _averaged(parts: Iterable[Tensor | None]) -> Tensor | None:
    """The mean of what is there, if it is of one shape: a model without budgets has no share to add."""
    found = [part for part in parts if part is not None]
    if not found or len({part.shape for part in found}) > 1:
        return None
    return torch.stack(found).mean(0)


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    found = [part for part in parts if part is not None]
    return torch.cat(found) if found and len(found) == len(parts) else None


def share_summary(shares: Tensor | None) -> ShareSummary | None:
    """Figures of shares ``(N, L)``; None for nothing."""
    if shares is None or not len(shares):
        return None
    wide = shares.double()
    by_input = wide.mean(1).clamp(0, 1)
    bins = (by_input * HISTOGRAM_BINS + 1e-6).long().clamp(max=HISTOGRAM_BINS - 1)  # float32 shares: 0.3 is in bin 6
    low, high = torch.quantile(by_input, torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    return ShareSummary(
        mean=float(by_input.mean()),
        p05=low,
        p95=high,
        histogram=tuple(torch.bincount(bins, minlength=HISTOGRAM_BINS).tolist()),
        layers=tuple(wide.mean(0).clamp(0, 1).tolist()),
    )
