"""The matrix products of a model without anything between them: the least time its forward pass can take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.attention.attention import Attention
from compress.attention.grouped import GroupedLinear
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

Product = Callable[[], Tensor]


class BareProducts:
    """Calls the stem, and then every product of every layer on inputs that are ready and contiguous.

    No normalisation, activation, residual sum, copy of streams, pooling or classifier. Weights are the model's own;
    states are random and are made once per shape, so that they are in the caches as often as a model's are.

    Args:
        model: the model.
        inputs: a batch.
    """

    def __init__(self, model: Transformer, inputs: Inputs) -> None:
        with torch.inference_mode():
            hidden = model.embed(inputs)
        self._states: dict[tuple[int, ...], Tensor] = {}
        self._like = hidden.states
        asking = hidden.states.shape[1] if hidden.pooled is None else 1
        self._asking = hidden.pooled if isinstance(hidden.pooled, int) else asking
        self._products: list[Callable[[], object]] = [partial(model.embed, inputs)]
        self._products += self._of_layers(model)

    def __call__(self) -> None:
        for product in self._products:
            product()

    def _of_layers(self, model: Transformer) -> Iterator[Product]:
        batch, tokens = self._like.shape[:2]
        for step, index in enumerate(model.order):
            layer, last = model.layers[index], step == len(model.order) - 1
            parted = model.structure.members > 1 and index >= model.structure.branch_layer
            rows, asking = batch * (model.structure.members if parted else 1), self._asking if last else tokens
            yield from self._of_attention(layer.attention, rows, tokens, asking)
            for module in layer.mlp.modules():
                if isinstance(module, nn.Linear | GroupedLinear):
                    yield self._linear(module, rows, asking)

    def _of_attention(self, attention: Attention, rows: int, tokens: int, asking: int) -> Iterator[Product]:
        inner = attention.slots * attention.head_width
        parts = (
            [(slice(None), tokens)] if asking == tokens else [(slice(0, inner), asking), (slice(inner, None), tokens)]
        )
        for outputs, count in parts:
            yield self._linear(attention.qkv, rows, count, outputs)
        query = self._state(rows, attention.slots, asking, attention.head_width)
        key = self._state(rows, attention.slots, tokens, attention.head_width)
        yield partial(F.scaled_dot_product_attention, query, key, key)
        yield self._linear(attention.output, rows, asking)

    def _linear(
        self, module: nn.Linear | GroupedLinear, rows: int, tokens: int, outputs: slice = slice(None)
    ) -> Product:
        if isinstance(module, nn.Linear):
            return partial(F.linear, self._state(rows * tokens, module.in_features), module.weight, module.bias)
        weight = module.weight[:, outputs]
        bias = None if module.bias is None else module.bias[:, outputs]
        if module.groups == 1:
            one = None if bias is None else bias[0]
            return partial(F.linear, self._state(rows * tokens, module.in_features), weight[0], one)
        states = self._state(module.groups, rows * tokens // module.groups, module.in_features)
        if bias is None:
            return partial(torch.bmm, states, weight.transpose(1, 2))
        return partial(torch.baddbmm, bias.unsqueeze(1), states, weight.transpose(1, 2))

    def _state(self, *shape: int) -> Tensor:
        if shape not in self._states:
            self._states[shape] = torch.randn(shape, device=self._like.device).to(self._like.dtype)
        return self._states[shape]
