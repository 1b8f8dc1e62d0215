"""Baselines that need no data: the size of a head's weights, and chance."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.transformer.model import Transformer


def magnitude_samples(model: Transformer) -> tuple[Tensor, ...]:
    """Euclidean norm of a head's value rows times that of its output columns, per layer ``(1, n_l)``.

    The product is unchanged when a factor moves between the two, which changes no output.
    """
    found = []
    for layer in model.layers:
        attention = layer.attention
        value = attention.qkv.weight.detach().float().view(3, attention.slots, -1)[2]
        output = (
            attention.output.weight.detach().float()[0].view(attention.width, attention.slots, attention.head_width)
        )
        found.append((value.norm(dim=1) * output.norm(dim=(0, 2))).unsqueeze(0).cpu())
    return tuple(found)


def random_samples(model: Transformer, members: int, seed: int) -> tuple[Tensor, ...]:
    """Uniform scores, per layer ``(members, n_l)``: one draw per member."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.rand(members, layer.attention.slots, generator=generator) for layer in model.layers)
