"""Heads drawn at random, for comparison with heads that were chosen."""

from __future__ import annotations

import torch
from torch import Tensor

GRID = 1000.0
"""Means are rounded to 1/GRID before they are hashed, so that rounding errors of the batch seldom change a draw."""


def drawn_relevance(mean: Tensor, real: Tensor, training: bool) -> Tensor:
    """Random numbers in (0, 1], ``(R, slots)``; 0 where ``real`` is False.

    In training they come from torch's random state. Else they are a hash of the row's own mean ``(R, C)``: the same
    input draws the same heads, in any batch.
    """
    if training:
        drawn = torch.rand(real.shape, device=real.device)
    else:
        generator = torch.Generator().manual_seed(0)
        size = (mean.shape[1], real.shape[1])
        odd = torch.randint(-(2**62), 2**62, size, generator=generator).to(mean.device) | 1
        cells = (mean.double() * GRID).round().nan_to_num(0.0, 0.0, 0.0).long()
        hashed = (cells[:, :, None] * odd).sum(1)  # wraps around, as hashes do
        drawn = (hashed >> 40 & 0xFFFF).double() / 0xFFFF
    return torch.where(real, 1.0 - 0.5 * drawn.to(mean.dtype), 0.0)
