"""Average precision from cumulative counts."""

from __future__ import annotations

import torch
from torch import Tensor


def average_precision(positive: Tensor, negative: Tensor) -> Tensor:
    """Σ_t (R_t − R_{t−1}) P_t, the step-wise area under the precision-recall curve, without interpolation.

    Args:
        positive: ``(..., T + 1)``, positives at or above each threshold, starting with 0.
        negative: the same for negatives.
    """
    precision = positive / (positive + negative).clamp(min=1)
    return (torch.diff(positive, dim=-1) * precision[..., 1:]).sum(dim=-1) / positive[..., -1]
