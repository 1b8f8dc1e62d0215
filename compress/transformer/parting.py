"""Where the streams of separate members part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from compress.transformer.config import Structure


def parting_layer(
    structures: Sequence[Structure], states: Sequence[Mapping[str, Tensor]], *, own_mlp: bool = False
) -> int:
    """The first layer that members cannot share: other heads, attention weights, or (with ``own_mlp``) another MLP.

    Args:
        structures: single models of one architecture.
        states: their tensors by name, in the same order.
        own_mlp: whether every member keeps its own MLPs.

    Returns:
        The number of layers when no layer parts them.
    """
    layers = len(structures[0].original_heads)
    for layer in range(layers):
        if any(structure.kept_heads[layer] != structures[0].kept_heads[layer] for structure in structures):
            return layer
        prefixes: tuple[str, ...] = (f"layers.{layer}.attention.qkv.", f"layers.{layer}.attention.output.")
        prefixes += (f"layers.{layer}.mlp.",) if own_mlp else ()
        names = [name for name in states[0] if name.startswith(prefixes)]
        if any(not torch.equal(states[0][name], state[name]) for name in names for state in states[1:]):
            return layer
    return layers
