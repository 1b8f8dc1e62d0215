"""Layers that only some tokens pass, and models with such layers."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from compress.attention.attention import Attention
from compress.errors import ModelError, UnsupportedModelError
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.transformer.router import Router
from compress.transformer.routing_config import Part, RoutingConfig
from compress.transformer.selection import Selection, put_tokens


class RoutedLayer(Layer):
    """A layer with a router: the chosen tokens attend among themselves, the others stay on the residual path.

    With y what the layer (or, for ``part`` attention, its attention sub-layer) makes of a chosen token x, the token
    leaves as ``y + (g − 1)·(y − x)``, g the router's gate: with w = 0 and capacity 1.0 the result is the layer's own
    bit for bit. Skipped tokens are not computed.

    Args:
        layer: what is routed; its modules are shared, not copied.
        router: chooses.
        part: what skipped tokens skip.

    Attributes:
        selection: what the router decided in the last forward pass; None before the first.

    Source: Raposo et al. 2024, arXiv 2404.02258, equation 1.
    """

    def __init__(self, layer: Layer, router: Router, part: Part = "block") -> None:
        super().__init__(
            layer.attention,
            layer.mlp,
            layer.norm1,
            layer.norm2,
            residual1=layer.residual1,
            residual2=layer.residual2,
            norm_first=layer.norm_first,
        )
        self.router, self.part = router, part
        self.skips_mlp = part == "block"
        self.selection: Selection | None = None
        self.train(layer.training)

    @property
    def executed(self) -> Tensor | None:  # type: ignore[override]
        """See ``Layer``."""
        return None if self.selection is None else self.selection.executed

    def selection_flops(self, tokens: int) -> int:
        """See ``Layer``: one product of the router's vector with every token."""
        return 2 * self.attention.width * tokens

    def with_attention(self, attention: Attention, mlp: nn.Module | None = None) -> RoutedLayer:
        """See ``Layer``; the router is shared."""
        return RoutedLayer(super().with_attention(attention, mlp), self.router, self.part)

    def forward(self, hidden: Hidden, *, gate: Tensor | None = None, last: bool = False) -> Hidden:
        """See ``Layer.forward``.

        Raises:
            UnsupportedModelError: a causal layer whose model reads more than one pooled token.
        """
        if self.attention.causal and not isinstance(hidden.pooled, Tensor):
            raise causal_refusal()
        self.selection = selection = self.router(hidden)
        inside = selection.gathered(hidden)
        pooled = inside.pooled if last else None
        attended = self.attention(self.attention_input(inside.states), inside.mask, gate=gate, pooled=pooled)
        states = self.add_attended(inside, attended, last=last)
        if self.skips_mlp:
            states = self.feed_forward(states)
        if pooled is None:  # else nothing but tokens that always pass, which have no gate
            states = _merged(hidden.states, inside.states, states, selection)
        return hidden.with_states(states if self.skips_mlp else self.feed_forward(states))


def _merged(all_tokens: Tensor, before: Tensor, after: Tensor, selection: Selection) -> Tensor:
    """All tokens ``(R, N, C)``, the chosen ones gated.

    Args:
        all_tokens: ``(R, N, C)`` in front of the block.
        before, after: ``(R, K, C)`` the chosen tokens in front of it and behind it.
        selection: who they are.
    """
    excess = selection.excess()
    if selection.places is None:
        return torch.addcmul(after, excess.unsqueeze(2).to(after.dtype), after - before)
    weight = excess.gather(1, selection.places).unsqueeze(2).to(after.dtype)
    after = torch.addcmul(after, weight, after - before)
    if selection.valid is not None:
        after = torch.where(selection.valid.unsqueeze(2), after, before)
    return put_tokens(all_tokens, selection.places, after.to(all_tokens.dtype))


def routed_layers(model: Transformer) -> Iterator[tuple[int, RoutedLayer]]:
    """The routed layers of a model and their numbers."""
    for index, layer in enumerate(model.layers):
        if isinstance(layer, RoutedLayer):
            yield index, layer


def routed_selections(model: Transformer) -> dict[int, list[Selection]]:
    """By number of a routed layer, what its router decided in each run of the last forward pass.

    A layer that several steps share (ALBERT) has several runs.
    """
    found: dict[int, list[Selection]] = {index: [] for index, _ in routed_layers(model)}
    if model.usage is not None:
        for index, selection in zip(model.order, model.usage.selections, strict=True):
            if selection is not None:
                found[index].append(selection)
    return found


def with_routers(model: Transformer, config: RoutingConfig) -> Transformer:
    """The same model with routers in front of some of its layers; all modules are shared with ``model``.

    The routers are fresh: their w is 0. A layer with several streams gets one per stream.

    Raises:
        ModelError: a block that the model does not have, or a model that has routers already.
        UnsupportedModelError: a causal model that reads more than one token.
    """
    if any(True for _ in routed_layers(model)):
        raise ModelError("the model has routers already", where="routing", fix="route the model that it was made from")
    if config.blocks[-1] >= len(model.layers):
        raise ModelError(
            f"the model has no block {config.blocks[-1]}",
            where="routing",
            fix=f"choose among 0..{len(model.layers) - 1}",
        )
    layers = list(model.layers)
    for block in config.blocks:
        layers[block] = _routed(layers[block], block, config, model.stem.prefix_tokens)
    return model.changed(model.config.model_copy(update={"routing": config}), layers=layers)


def _routed(layer: Layer, block: int, config: RoutingConfig, prefix_tokens: int) -> RoutedLayer:
    weight = layer.attention.output.weight
    router = Router(
        layer.attention.width,
        streams=layer.attention.groups,
        capacity=config.capacity_of(block),
        prefix_tokens=prefix_tokens,
        choice=config.choice,
        seed=block,
    )
    return RoutedLayer(layer, router.to(weight.device), config.part)


def causal_refusal() -> UnsupportedModelError:
    """Why a decoder has no routers."""
    return UnsupportedModelError(
        "routers in a causal model that reads every token would look ahead: which tokens pass depends on later ones",
        fix="route an encoder, or a tower that reads one pooled token",
    )
