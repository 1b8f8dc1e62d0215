"""The two ends of a model that know its family, and what flows between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

Inputs = Tensor | Mapping[str, Tensor]
PROBE_TOKENS = 16


@dataclass(frozen=True)
class Hidden:
    """Hidden states on their way through the layers.

    Attributes:
        states: ``(R, N, C)``; R = B below the branch layer, M·B (member-major) from it on.
        mask: ``(R, N)``, True for real tokens, or None when nothing is padded.
        pooled: which tokens the pooling reads: a count n (the first n), an index ``(R,)``, or None (all).
    """

    states: Tensor
    mask: Tensor | None = None
    pooled: int | Tensor | None = None

    def repeated(self, members: int) -> Hidden:
        """The same states for ``members`` streams."""
        mask = None if self.mask is None else self.mask.repeat(members, *[1] * (self.mask.dim() - 1))
        pooled = self.pooled.repeat(members) if isinstance(self.pooled, Tensor) else self.pooled
        return Hidden(self.states.repeat(members, 1, 1), mask, pooled)

    def with_states(self, states: Tensor) -> Hidden:
        """The same masks around other states."""
        return replace(self, states=states)


class Stem(nn.Module):
    """From inputs to the first hidden states; one subclass per family.

    Attributes:
        prefix_tokens: class, distillation and register tokens before the first patch or word.
    """

    prefix_tokens: int = 0

    def forward(self, inputs: Inputs) -> Hidden:
        raise NotImplementedError

    def example(self, batch: int = 1, length: int | None = None) -> Inputs:
        """Valid inputs for shapes and timings: ``batch`` of them, of ``length`` tokens where the family has lengths."""
        raise NotImplementedError

    def probe(self, batch: int = 2) -> Inputs:
        """Inputs for comparing two models: random images, or short texts."""
        example = self.example(batch)
        if isinstance(example, Tensor):
            noise = torch.randn(example.shape, generator=torch.Generator().manual_seed(0))
            return noise.to(example.device, example.dtype)
        return self.example(batch, min(PROBE_TOKENS, example["input_ids"].shape[1]))


class Head(nn.Module):
    """From the last hidden states to logits: pooling and classifier; one subclass per family.

    Attributes:
        per_member: names of the linear layers inside that every member of a fused model keeps for itself.
    """

    per_member: tuple[str, ...] = ()

    def forward(self, hidden: Hidden) -> Tensor:
        """Logits ``(R, K)``. With ``hidden.pooled`` set, ``hidden.states`` holds the pooled tokens only."""
        raise NotImplementedError
