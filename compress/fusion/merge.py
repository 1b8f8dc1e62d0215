"""The tensors of a fused model, each made from the members' tensors of the same name when it is asked for.

Source: Hydra Ensembles, arXiv 2510.18358: attention side by side in grouped layers, everything else averaged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from compress.artifact.tensors import TensorEntry, TensorFile
from compress.errors import ModelError
from compress.transformer.model import Transformer
from compress.transformer.surgery import select_heads

State = Mapping[str, Tensor]
Merging = Literal["grouped", "stacked", "averaged"]
ATTENTION = re.compile(r"layers\.\d+\.attention\.(?:qkv|output)\.(?:weight|bias)")


def merging_of(name: str, expected: Tensor, single: Tensor) -> Merging:
    """How one tensor of the members becomes a tensor of the fused model.

    Args:
        name: of the tensor.
        expected: the fused skeleton's tensor of that name.
        single: a member's.

    Returns:
        ``grouped``: projections of an attention side by side, or one for all in the trunk; ``stacked``: a linear layer
        that every member keeps for itself; ``averaged``: one tensor for all, their mean.
    """
    if ATTENTION.fullmatch(name) is not None:
        return "grouped"
    return "stacked" if expected.dim() == single.dim() + 1 else "averaged"


def equal_in_all(name: str, states: Sequence[State]) -> bool:
    """Whether every member holds the same tensor of that name."""
    first = states[0][name]
    return all(torch.equal(first, state[name]) for state in states[1:])


def merges_exactly(fused: Transformer, states: Sequence[State]) -> bool:
    """Whether averaging changes nothing: what differs between the members is kept for each of them.

    Args:
        fused: the skeleton of the fused model.
        states: the members' tensors by name.
    """
    return all(
        equal_in_all(name, states)
        for name, expected in fused.state_dict().items()
        if merging_of(name, expected, states[0][name]) == "averaged"
    )


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
    merging = merging_of(name, expected, tensors[0])
    if merging == "grouped":
        return _side_by_side(tensors, name, fused, members)
    return torch.stack(tensors) if merging == "stacked" else average(tensors, name)


def _side_by_side(tensors: Sequence[Tensor], name: str, fused: Transformer, members: Sequence[Transformer]) -> Tensor:
    """One attention tensor ``(M, ...)`` of the members, padded with zeros to the member with the most heads.

    In the trunk, where all are equal, that of the first.
    """
    _, number, _, part = name.split(".", 3)
    layer = int(number)
    groups, slots = fused.layers[layer].attention.groups, fused.layers[layer].attention.slots
    padded = []
    for member, tensor in zip(members[:groups], tensors[:groups], strict=True):
        attention = member.layers[layer].attention
        padded.append(select_heads(tensor, part, range(attention.slots), attention, slots))
    return torch.cat(padded)
