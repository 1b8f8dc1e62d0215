"""The mean of a column, optionally under bootstrap weights."""

from __future__ import annotations

import torch
from torch import Tensor


def mean(column: Tensor, weights: Tensor | None = None) -> Tensor:
    """``Σ_i w_i x_i / Σ_i w_i`` in float64.

    Args:
        column: ``(N,)``.
        weights: ``(R, N)`` float64, or ``None`` for w = 1.

    Returns:
        a scalar, or ``(R,)`` with weights.
    """
    values = column.to(torch.float64)
    return values.mean() if weights is None else weights @ values / weights.sum(dim=-1)
