"""Risk at a fixed coverage."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.metrics.risk_coverage import risk_coverage
from compress.evaluation.predictions import Columns


def risk_at_80(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Error rate of the 80 % most confident samples; range [0, 1], lower is better. See ``risk_at_coverage``."""
    return risk_at_coverage(columns, 80, weights)


def risk_at_90(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Error rate of the 90 % most confident samples; range [0, 1], lower is better. See ``risk_at_coverage``."""
    return risk_at_coverage(columns, 90, weights)


def risk_at_coverage(columns: Columns, percent: int, weights: Tensor | None = None) -> Tensor:
    """Error rate of the k = ⌈N · percent / 100⌉ most confident samples.

    Geifman and El-Yaniv, NeurIPS 2017 (arXiv 1705.08500). Where the k-th sample lies among samples of equal
    confidence, these count with their mean error.
    """
    curve = risk_coverage(columns, weights)
    upto = curve.size.cumsum(dim=-1)
    accepted = torch.ceil(upto[..., -1:] * percent / 100)
    group = torch.searchsorted(upto, accepted)
    size, errors = curve.size.gather(-1, group), curve.errors.gather(-1, group)
    before = upto.gather(-1, group) - size
    errors_before = curve.errors.cumsum(dim=-1).gather(-1, group) - errors
    return ((errors_before + errors / size * (accepted - before)) / accepted).squeeze(-1)
