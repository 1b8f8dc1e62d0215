"""Heads drawn at random, for comparison with heads that were chosen."""

from __future__ import annotations

import torch
from torch import Tensor

PROJECTIONS = 4
GRID = 50.0
"""What is hashed are a few projections of the mean's direction, each with a deviation of 1, rounded to 1/GRID: a mean
that differs by rounding errors of the batch, 1e-6 of it, then changes cell in about 1 of 2,000 draws."""


def drawn_relevance(mean: Tensor, real: Tensor, training: bool) -> Tensor:
    """Random numbers in (0, 1], ``(R, slots)``; 0 where ``real`` is False.

    In training they come from torch's random state. Else they are a hash of where the row's own mean ``(R, C)`` points:
    the same input draws the same heads, in any batch.
    """
    if training:
        drawn = torch.rand(real.shape, device=real.device)
    else:
        generator = torch.Generator().manual_seed(0)
        directions = torch.randn((mean.shape[1], PROJECTIONS), generator=generator, dtype=torch.float64)
        size = (PROJECTIONS, real.shape[1])
        odd = torch.randint(-(2**62), 2**62, size, generator=generator).to(mean.device) | 1
        sides = torch.nn.functional.normalize(mean.double(), dim=-1) @ directions.to(mean.device)
        cells = (sides * GRID).floor().nan_to_num(0.0, 0.0, 0.0).long()
        hashed = (cells[:, :, None] * odd).sum(1)  # wraps around, as hashes do
        drawn = (hashed >> 40 & 0xFFFF).double() / 0xFFFF
    return torch.where(real, 1.0 - 0.5 * drawn.to(mean.dtype), 0.0)
