"""Random weights for tiny models."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def randomised(module: M, seed: int = 0) -> M:
    """Every parameter random: a fresh norm or LayerScale would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_scale = "norm" in name.lower() and name.endswith("weight")
            parameter.copy_(1 + 0.2 * noise if is_scale else 0.3 * noise)
    return module.eval()
