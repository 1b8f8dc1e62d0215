"""Giving a model another structure: fewer heads, several members side by side."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from compress.attention.attention import Attention, Heads
from compress.attention.grouped import GroupedLinear
from compress.transformer.budgets import with_budgets
from compress.transformer.config import ModelConfig
from compress.transformer.model import Transformer
from compress.transformer.routing import with_routers


def select_heads(tensor: Tensor, name: str, positions: Sequence[int], attention: Attention, slots: int) -> Tensor:
    """The part of one attention tensor that belongs to some heads.

    Args:
        tensor: a tensor of a single-group attention: ``qkv.weight (1, 3·n·D, C)``, ``qkv.bias (1, 3·n·D)``,
            ``output.weight (1, C, n·D)`` or ``output.bias (1, C)``.
        name: which of them.
        positions: the slots to take, in order.
        attention: the module that ``tensor`` belongs to.
        slots: the number of slots of the result; those beyond ``positions`` are zero.

    Returns:
        The tensor with ``slots`` in the place of ``n``.
    """
    old, head_width = attention.slots, attention.head_width
    if name == "output.bias":
        return tensor
    if name == "output.weight":
        by_head = tensor.reshape(1, attention.width, old, head_width)
    else:
        by_head = tensor.reshape(1, 3, old, head_width, *tensor.shape[2:])
    if list(positions) != list(range(old)):
        by_head = by_head[:, :, list(positions)]  # torch indexes this several times as fast as index_select
    missing = slots - len(positions)
    if missing:
        shape = list(by_head.shape)
        shape[2] = missing
        by_head = torch.cat([by_head, by_head.new_zeros(shape)], 2)
    if name == "output.weight":
        return by_head.reshape(1, attention.width, slots * head_width)
    return by_head.reshape(1, 3 * slots * head_width, *tensor.shape[2:])


def keep_heads(attention: Attention, kept: Heads) -> Attention:
    """A single-group attention that runs only ``kept`` (numbers in the original model), its weights sliced out."""
    positions = [attention.kept_heads[0].index(head) for head in kept]
    pruned = attention.with_heads([kept], device="meta")
    weights = dict(attention.named_parameters())
    for name in ("qkv.weight", "qkv.bias", "output.weight", "output.bias"):
        if name in weights:
            source = weights[name].detach()
            tensor = select_heads(source, name, positions, attention, len(kept))
            tensor = tensor.clone() if tensor.data_ptr() == source.data_ptr() else tensor
            module, _, leaf = name.partition(".")
            setattr(getattr(pruned, module), leaf, nn.Parameter(tensor))
    return pruned.train(attention.training)


def prune_heads(model: Transformer, kept_heads: Sequence[Heads]) -> Transformer:
    """A single model that keeps ``kept_heads[layer]``; its attentions are new, all else is shared with ``model``."""
    structure = model.structure.model_copy(update={"kept_heads": tuple((tuple(heads),) for heads in kept_heads)})
    # A threshold of abstention belongs to the heads that it was fitted with.
    config = model.config.model_copy(update={"structure": structure, "abstention": None})
    layers = [
        layer.with_attention(keep_heads(layer.attention, heads))
        for layer, heads in zip(model.layers, kept_heads, strict=True)
    ]
    return model.changed(config, layers=layers)


def grouped_copy(module: nn.Module, names: Sequence[str], groups: int) -> nn.Module:
    """A copy of ``module`` in which the linear layers ``names`` are grouped, with zero weights."""
    copied = copy.deepcopy(module)
    for name in names:
        linear = cast(nn.Linear, copied.get_submodule(name))
        grouped = GroupedLinear(
            groups, linear.in_features, linear.out_features, linear.bias is not None, linear.weight.device
        )
        parent, _, leaf = name.rpartition(".")
        setattr(copied.get_submodule(parent), leaf, grouped)
    return copied


def linear_names(module: nn.Module) -> tuple[str, ...]:
    """The names of the linear layers inside ``module``."""
    return tuple(name for name, child in module.named_modules() if isinstance(child, nn.Linear))


def restructured(model: Transformer, config: ModelConfig) -> Transformer:
    """An original model's skeleton in the structure of ``config``; the new modules hold zeros, to be loaded."""
    structure = config.structure
    layers = []
    for index, (layer, kept) in enumerate(zip(model.layers, structure.kept_heads, strict=True)):
        separate = structure.mlp == "grouped" and structure.members > 1 and index >= structure.branch_layer
        mlp = grouped_copy(layer.mlp, linear_names(layer.mlp), structure.members) if separate else None
        layers.append(layer.with_attention(layer.attention.with_heads(kept), mlp))
    head = model.head
    if structure.members > 1:
        head = grouped_copy(head, head.per_member, structure.members)  # type: ignore[assignment]
    whole = model.changed(config, layers=layers, head=head)
    if config.budget is not None:
        whole = with_budgets(whole, config.budget)
    return whole if config.routing is None else with_routers(whole, config.routing)
