"""A tiny fused model whose members keep different numbers of heads."""

from __future__ import annotations

from compress.fusion.in_memory import fuse_models
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads

KEPT = ((0, 1, 3), (2,), (0, 3))


def ragged(model: Transformer) -> Transformer:
    """Three members of a model of four heads: they share the first layer, and keep 3, 1 and 2 heads of every other."""
    others = len(model.layers) - 1
    return fuse_models([prune_heads(model, [(0, 1, 2, 3), *[heads] * others]) for heads in KEPT])
