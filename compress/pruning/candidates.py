"""One layer's candidates: the model's answers without each of the layer's heads, computed together."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from compress.transformer.model import Gates, Transformer
from compress.transformer.parts import Hidden

# What a layer holds per value of the hidden states: a normalised copy, two residual sums, and an MLP of four times the
# width before and after its activation. Rough; heads beyond this much memory run group after group.
VALUES_PER_STATE = 12
CANDIDATE_BYTES = 2**30


def candidate_logits(model: Transformer, hidden: Hidden, layer: int, gates: Gates) -> Iterator[Tensor]:
    """Logits without each head of a layer, ``(h, B, K)`` for one group of heads after the other.

    The layer's attention runs once: the output without a head is the full output less the head's own contribution.
    A layer that the model uses several times (ALBERT) loses the head in all its uses, so its candidates run through it
    with gates.

    Args:
        model: a single model, in evaluation mode.
        hidden: B inputs as they enter the layer's first use.
        layer: number of the layer.
        gates: of the layers below, per layer ``(1, n_l)`` or None.
    """
    heads = range(model.layers[layer].attention.slots)
    together = heads_at_once(hidden)
    groups = [heads[start : start + together] for start in heads[::together]]
    shared = model.order.count(layer) > 1
    candidates = (
        _through_gates(model, hidden, layer, gates, groups)
        if shared
        else _through_contributions(model, hidden, layer, gates, groups)
    )
    for group, states in zip(groups, candidates, strict=True):
        yield model.classify(states)[0].unflatten(0, (len(group), -1))


def heads_at_once(hidden: Hidden) -> int:
    """How many candidates of a batch fit into ``CANDIDATE_BYTES`` together; at least one."""
    return max(1, CANDIDATE_BYTES // (hidden.states.nbytes * VALUES_PER_STATE))


def _through_contributions(
    model: Transformer, hidden: Hidden, layer: int, gates: Gates, groups: list[range]
) -> Iterator[Hidden]:
    """The last hidden states of every group, ``(h·B, N, C)``."""
    module, step = model.layers[layer], model.order.index(layer)
    attention, last = module.attention, step == len(model.order) - 1
    context = attention.context(
        module.attention_input(hidden.states), hidden.mask, pooled=hidden.pooled if last else None
    )
    full = attention.project(context)
    for group in groups:
        without = full - attention.contributions(context, slice(group.start, group.stop))
        states = module.complete(hidden.repeated(len(group)), without.flatten(0, 1), last=last)
        yield model.run_layers(states, start=step + 1, gates=gates)


def _through_gates(
    model: Transformer, hidden: Hidden, layer: int, gates: Gates, groups: list[range]
) -> Iterator[Hidden]:
    """The last hidden states of every group, ``(h·B, N, C)``."""
    slots, rows = model.layers[layer].attention.slots, len(hidden.states)
    for group in groups:
        others = 1 - torch.eye(slots, device=hidden.states.device)[list(group)]
        candidates = list(gates)
        candidates[layer] = others.repeat_interleave(rows, 0)
        yield model.run_layers(hidden.repeated(len(group)), start=model.order.index(layer), gates=candidates)
