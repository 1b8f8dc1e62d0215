"""Whether pruned copies can be fused, and where their streams part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from compress.artifact.tensors import TensorFile
from compress.errors import ModelError
from compress.transformer.config import ModelConfig, Structure

FIX = "fuse members that were pruned from one model"


def check_configs(configs: Sequence[ModelConfig], names: Sequence[str]) -> None:
    """Raise ``ModelError`` when labels, preprocessing or architecture differ; the message names both members."""
    first = configs[0]
    for name, config in zip(names[1:], configs[1:], strict=True):
        if config.structure.members > 1:
            raise ModelError("is fused already", where=name, fix=FIX)
        for part in ("labels", "preprocessing", "backbone", "dtype"):
            if getattr(config, part) != getattr(first, part):
                raise ModelError(f"{part} differs from that of {names[0]}", where=name, fix=FIX)
        if config.structure.original_heads != first.structure.original_heads:
            raise ModelError(f"the heads of the original model differ from {names[0]}", where=name, fix=FIX)


def check_shapes(states: Sequence[TensorFile], names: Sequence[str]) -> None:
    """Compare every tensor that fusing will average or stack, before any work.

    Raises:
        ModelError: naming the tensor, the members and both shapes.
    """
    first = states[0]
    for name, state in zip(names[1:], states[1:], strict=True):
        different = sorted(set(first) ^ set(state))
        if different:
            raise ModelError(f"tensor {different[0]} is in one of {names[0]} and {name} only", where=name, fix=FIX)
        for tensor in first:
            if ".attention." in tensor:
                continue  # follows from the kept heads, which may differ
            if first.shape(tensor) != state.shape(tensor):
                raise ModelError(
                    f"tensor {tensor} is {state.shape(tensor)}, in {names[0]} {first.shape(tensor)}",
                    where=name,
                    fix=FIX,
                )


def parting_layer(structures: Sequence[Structure], states: Sequence[Mapping[str, Tensor]], *, own_mlp: bool) -> int:
    """The first layer that cannot be shared: other heads, other attention weights, or (with ``own_mlp``) another MLP."""
    layers = len(structures[0].original_heads)
    for layer in range(layers):
        if any(structure.kept_heads[layer] != structures[0].kept_heads[layer] for structure in structures):
            return layer
        prefixes = (f"layers.{layer}.attention.qkv.", f"layers.{layer}.attention.output.")
        prefixes += (f"layers.{layer}.mlp.",) if own_mlp else ()
        names = [name for name in states[0] if name.startswith(prefixes)]
        if any(not torch.equal(states[0][name], state[name]) for name in names for state in states[1:]):
            return layer
    return layers


def same_elsewhere(states: Sequence[Mapping[str, Tensor]]) -> bool:
    """Whether the members differ in their attentions only, so that averaging changes nothing."""
    shared = [name for name in states[0] if ".attention." not in name]
    return all(torch.equal(states[0][name], state[name]) for name in shared for state in states[1:])
