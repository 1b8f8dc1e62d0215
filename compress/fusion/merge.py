"""The tensors of a fused model, each made from the members' tensors of the same name when it is asked for.

Source: Hydra Ensembles, arXiv 2510.18358: attention side by side in grouped layers, everything else averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from compress.artifact.tensors import TensorEntry, TensorFile
from compress.errors import ModelError
from compress.transformer.model import Transformer
from compress.transformer.surgery import select_heads

State = Mapping[str, Tensor]
ATTENTION = re.compile(r"layers\.(\d+)\.attention\.((?:qkv|output)\.(?:weight|bias))")


def average(tensors: Sequence[Tensor], name: str) -> Tensor:
    """Their mean, computed in float32 or better; equal tensors come back bit for bit.

    Raises:
        ModelError: integers that differ, which have no mean.
    """
    first = tensors[0]
    if all(torch.equal(first, tensor) for tensor in tensors[1:]):
        return first
    if not first.is_floating_point():
        raise ModelError("the members hold different integers, which cannot be averaged", where=name)
    total = torch.zeros_like(first, dtype=torch.promote_types(first.dtype, torch.float32))
    for tensor in tensors:
        total += tensor
    return total.div_(len(tensors)).to(first.dtype)


def fused_entries(
    fused: Transformer, members: Sequence[Transformer], states: Sequence[TensorFile]
) -> Iterator[TensorEntry]:
    """Every tensor of the fused model; ``states`` are read when an entry is loaded, one name at a time.

    Args:
        fused: the skeleton of the fused model.
        members: the skeletons of the pruned copies.
        states: their tensors by name, in the same order.
    """
    for name, expected in fused.state_dict().items():
        load = partial(merged_tensor, name, expected, fused, members, states)
        yield TensorEntry(name, states[0].dtype(name), tuple(expected.shape), load)


def merged_tensor(
    name: str, expected: Tensor, fused: Transformer, members: Sequence[Transformer], states: Sequence[State]
) -> Tensor:
    """One tensor of the fused model.

    Args:
        name: of the tensor.
        expected: the skeleton's tensor of that name.
        fused, members, states: as in ``fused_entries``.
    """
    tensors = [state[name] for state in states]
    attention = ATTENTION.fullmatch(name)
    if attention is not None:
        layer, part = int(attention[1]), attention[2]
        groups = fused.layers[layer].attention.groups
        return _side_by_side(tensors[:groups], layer, part, fused, members)
    if expected.dim() == tensors[0].dim() + 1:  # a linear layer that every member keeps for itself
        return torch.stack(tensors)
    return average(tensors, name)


def _side_by_side(
    tensors: Sequence[Tensor], layer: int, part: str, fused: Transformer, members: Sequence[Transformer]
) -> Tensor:
    """One attention tensor ``(M, ...)`` of the members, padded with zeros to the member with the most heads."""
    slots = fused.layers[layer].attention.slots
    padded = []
    for member, tensor in zip(members, tensors, strict=False):
        attention = member.layers[layer].attention
        padded.append(select_heads(tensor, part, range(attention.slots), attention, slots))
    return torch.cat(padded)
