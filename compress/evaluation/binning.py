"""Equal-width confidence bins, shared by the calibration errors."""

from __future__ import annotations

import torch
from torch import Tensor

CALIBRATION_BINS = 15


def bin_index(confidence: Tensor, bins: int = CALIBRATION_BINS) -> Tensor:
    """The bin of each confidence: ``[0, 1/bins), [1/bins, 2/bins), ... [1 - 1/bins, 1]``; the last is closed.

    Args:
        confidence: probabilities in ``[0, 1]``, any shape, float64.

    Returns:
        int64 indices in ``0 .. bins - 1``, of the same shape.
    """
    return (confidence * bins).to(torch.int64).clamp_(max=bins - 1)
