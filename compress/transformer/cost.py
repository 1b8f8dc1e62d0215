"""Parameters and floating-point operations, counted from the structure; 1 multiply-add = 2 FLOPs."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from compress.attention.attention import Attention
from compress.attention.grouped import GroupedLinear
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden

M = TypeVar("M", bound=nn.Module)
Count = TypeVar("Count", int, Tensor)


@dataclass(frozen=True)
class LayerCost:
    """One step of the encoder, for one input.

    Attributes:
        layer: number of the layer.
        streams: rows per input: 1 in the trunk, M from the branch layer on.
        attention: FLOPs of projections, scores and weighted sums, and of choosing heads.
        mlp: FLOPs of the feed-forward module.
        routing: FLOPs of choosing the tokens that pass.
    """

    layer: int
    streams: int
    attention: int
    mlp: int
    routing: int = 0

    @property
    def total(self) -> int:
        return self.attention + self.mlp + self.routing


@dataclass(frozen=True)
class Cost:
    """What one forward pass costs that executes everything, for one input of ``tokens`` tokens.

    In the last layer only ``asking`` of them ask and pass the MLP: the pooled ones.
    """

    tokens: int
    asking: int
    stem: int
    layers: tuple[LayerCost, ...]
    head: int
    parameters: int

    @property
    def flops(self) -> int:
        """FLOPs per input."""
        return self.stem + sum(layer.total for layer in self.layers) + self.head

    @property
    def attention_flops(self) -> int:
        """FLOPs of the attention sub-layers per input."""
        return sum(layer.attention for layer in self.layers)


def count_cost(model: Transformer, *, length: int | None = None) -> Cost:
    """The cost of one input of the model's own size, or of ``length`` tokens.

    Works on a skeleton too. Normalisations, activations and other element-wise work are not counted, as is the custom.
    The layers are analytic; stem and head are family code, and are counted as they run on one example.
    """
    stem, head = _in_memory(model.stem), _in_memory(model.head)
    stem_flops, hidden = _counted(stem, stem.example(1, length))
    tokens = hidden.states.shape[1]
    asking = _asking(hidden, tokens)
    states = hidden.states.new_zeros(model.structure.members, asking, hidden.states.shape[2])
    head_flops, _ = _counted(head, Hidden(states, None, hidden.pooled))
    layers = tuple(
        _layer_cost(model, index, tokens, asking if step == len(model.order) - 1 else tokens)
        for step, index in enumerate(model.order)
    )
    return Cost(tokens, asking, stem_flops, layers, head_flops, count_parameters(model))


def count_parameters(model: nn.Module) -> int:
    """Distinct parameters; the zero padding of groups with fewer heads is not counted."""
    stored = sum(parameter.numel() for parameter in model.parameters())
    return stored - sum(_padding(module) for module in model.modules() if isinstance(module, Attention))


def head_parameters(attention: Attention) -> int:
    """Parameters that go with one head: its query, key and value rows and its columns of the output projection."""
    bias = 1 if attention.qkv.bias is not None else 0
    return attention.head_width * (3 * (attention.width + bias) + attention.width)


def _padding(attention: Attention) -> int:
    return sum(attention.slots - len(heads) for heads in attention.kept_heads) * head_parameters(attention)


def _in_memory(module: M) -> M:
    """The module itself, or for a skeleton a copy with memory: of zeros, since some values are indices."""
    if not any(parameter.is_meta for parameter in module.parameters()):
        return module
    copied = copy.deepcopy(module).to_empty(device="cpu")
    for tensor in copied.state_dict(keep_vars=True).values():
        tensor.detach().zero_()
    for buffer in copied.buffers():  # those too that are not saved
        buffer.zero_()
    return copied


def _counted(module: nn.Module, argument: Any) -> tuple[int, Any]:
    """FLOPs of a call and its result; on the math attention path, since the fused ones count as nothing on a CPU."""
    from torch.utils.flop_counter import FlopCounterMode  # loads triton, which only what is counted here needs

    # Detached, because the counter's module tracker fails on views of parameters that want a gradient.
    frozen = {name: tensor.detach() for name, tensor in module.state_dict(keep_vars=True).items()}
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result = functional_call(module, frozen, (argument,))
    return counter.get_total_flops(), result


def _asking(hidden: Hidden, tokens: int) -> int:
    """Tokens that pass the last MLP: only the pooled ones."""
    if hidden.pooled is None:
        return tokens
    return hidden.pooled if isinstance(hidden.pooled, int) else 1


def _layer_cost(model: Transformer, index: int, tokens: int, asking: int) -> LayerCost:
    layer = model.layers[index]
    streams = model.structure.members if index >= model.structure.branch_layer else 1
    return LayerCost(
        index,
        streams,
        streams * attention_flops(layer.attention, layer.attention.slots, tokens, asking),
        streams * mlp_flops(layer, asking),
        streams * layer.selection_flops(tokens),
    )


def attention_flops(attention: Attention, heads: Count, tokens: Count, asking: Count) -> Count:
    """FLOPs of one stream: in ``heads`` heads ``asking`` tokens attend to ``tokens`` tokens.

    The counts are numbers, or tensors with one entry per input.
    """
    inner = heads * attention.head_width
    projections = inner * (asking + tokens * 2) * (2 * attention.width)
    scores_and_sums = asking * tokens * inner * 4
    output = asking * inner * (2 * attention.width)
    return projections + scores_and_sums + output + attention.selection_flops


def mlp_flops(layer: Layer, tokens: Count) -> Count:
    """FLOPs of the feed-forward module for one stream; ``tokens`` is a number or a tensor."""
    linear = [module for module in layer.mlp.modules() if isinstance(module, nn.Linear | GroupedLinear)]
    return tokens * (2 * sum(module.in_features * module.out_features for module in linear))
