"""Head dropout: in training, an input loses the contexts of some heads of a layer, so that a model bears pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from compress.attention.attention import Attention
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.tuning.batches import Share
from compress.tuning.options import Tune
from compress.tuning.seeds import generator


@dataclass(frozen=True)
class HeadDropout:
    """Draws the gates of every layer.

    With probability ``probability`` an input keeps k heads of a layer, k uniform in ``keep .. H``; else all. Contexts
    are not rescaled, as pruning does not rescale them either.

    Attributes:
        probability: per input, layer and member.
        keep: the fewest heads that stay.
        first_layer: layers below keep all heads.
        seed: seed of all draws.
    """

    probability: float
    keep: int
    first_layer: int
    seed: int

    def gates(self, model: Transformer, share: Share) -> list[Tensor | None] | None:
        """Per distinct layer gates ``(M·b, slots)`` of 0 and 1 for the inputs of one share; None: no gate.

        Args:
            model: its structure says which layers have streams.
            share: the same share gets the same gates.
        """
        if not self.probability:
            return None
        source = generator(self.seed, "heads", share.number)
        return [
            None if index < self.first_layer else self._layer_gates(cast(Layer, layer).attention, share, source)
            for index, layer in enumerate(model.layers)
        ]

    def _layer_gates(self, attention: Attention, share: Share, source: torch.Generator) -> Tensor:
        real = real_heads(attention.kept_heads, attention.slots)
        heads = real.sum(1)[:, None]  # (M, 1)
        least = heads.clamp(max=self.keep)
        draw = torch.rand(attention.groups, share.size, 2, generator=source)
        kept = least + ((heads - least + 1) * draw[..., 0]).floor().long()
        kept = torch.where(draw[..., 1] < self.probability, kept, heads.expand_as(kept))
        order = torch.rand(attention.groups, share.size, attention.slots, generator=source)
        rank = order.masked_fill(~real[:, None], 2.0).argsort(-1).argsort(-1)  # padding ranks behind every head
        gates = (rank < kept[..., None]).float()[:, share.rows]
        return gates.flatten(0, 1)


def real_heads(kept_heads: Sequence[Sequence[int]], slots: int) -> Tensor:
    """``(M, slots)``, True for slots that hold a head and False for the padding of smaller groups."""
    counts = torch.tensor([len(heads) for heads in kept_heads])
    return torch.arange(slots) < counts[:, None]


def head_dropout(options: Tune) -> HeadDropout:
    """The head dropout that the options ask for."""
    return HeadDropout(options.head_dropout, options.head_dropout_keep, options.head_dropout_from, options.seed)
