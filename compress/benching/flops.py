"""FLOPs of the variants, per input."""

from __future__ import annotations

from compress.transformer.cost import attention_flops, count_cost, mlp_flops
from compress.transformer.model import Transformer


def library_flops(model: Transformer, length: int | None) -> int:
    """What the library's own model computes for one input: every token passes the last layer too.

    Args:
        model: the project's model of the same structure, unpruned.
        length: tokens of the input; None for the model's own size.
    """
    cost = count_cost(model, length=length)
    last = model.layers[model.order[-1]]
    attention = attention_flops(last.attention, last.attention.slots, cost.tokens, cost.tokens)
    every_token = attention + mlp_flops(last, cost.tokens)
    return cost.flops - cost.layers[-1].total + every_token
