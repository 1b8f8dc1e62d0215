"""Heads masked in place of being cut: gates on their contexts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compress.transformer.model import Gates, Transformer

Slots = Sequence[Sequence[int]]
"""Per layer, from the lowest up, positions among the model's present heads."""


def head_numbers(model: Transformer, slots: Slots) -> tuple[tuple[int, ...], ...]:
    """The heads at ``slots`` of every layer by their numbers in the original model."""
    return tuple(
        tuple(layer.attention.kept_heads[0][slot] for slot in own)
        for layer, own in zip(model.layers, slots, strict=True)
    )


def without(model: Transformer, masked: Slots) -> Gates:
    """Gates ``(1, n_l)`` that mask the slots given for the lowest layers; None for a layer with nothing to mask."""
    gates: list[Tensor | None] = [None] * len(model.layers)
    for layer, slots in enumerate(masked):
        if slots:
            attention = model.layers[layer].attention
            gate = torch.ones(1, attention.slots, device=attention.qkv.weight.device)
            gate[0, list(slots)] = 0
            gates[layer] = gate
    return gates


def only(model: Transformer, kept: Slots) -> Gates:
    """Gates that mask all heads but the slots given for every layer: the model as if it were pruned to them."""
    present = [range(layer.attention.slots) for layer in model.layers]
    return without(model, [sorted(set(every) - set(own)) for every, own in zip(present, kept, strict=True)])
