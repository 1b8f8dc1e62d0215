"""Which tokens of a batch pass a routed block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from compress.transformer.parts import Hidden

MILLION = 1_000_000
Count = TypeVar("Count", int, Tensor)


def routed_count(capacity: float, tokens: Count) -> Count:
    """``⌈capacity · tokens⌉`` in integers, so that 0.07 of 100 tokens are 7 on every device.

    Args:
        capacity: a share, read to a millionth.
        tokens: a count, or a tensor of counts, int64.
    """
    return (round(capacity * MILLION) * tokens + (MILLION - 1)) // MILLION


def real_tokens(hidden: Hidden) -> Tensor | None:
    """``(R, N)``, True for tokens that are no padding; None when all are real.

    Of a mask ``(R, 1 | H, N, N)`` a token is real that any token may attend to.
    """
    mask = hidden.mask
    return mask.flatten(1, 2).any(1) if mask is not None and mask.dim() == 4 else mask


@dataclass(frozen=True, eq=False)
class Selection:
    """What a router decided about R rows of N tokens in its last forward pass.

    Attributes:
        scores: ``(R, N)``, float32 or better, the router's r; carries a gradient in training.
        routed: ``(R, N)``, True for the tokens that the router decides about: real ones that do not always pass.
        passed: ``(R, N)``, True for the tokens that pass, those that always do included.
        places: ``(R, K)`` int64, the places of the passing tokens in ascending order, filled up with places of tokens
            that do not pass; None when the block runs on all tokens.
        valid: ``(R, K)``, False where ``places`` is filled up; None when it nowhere is.
        gated: whether tokens leave the block with the weight that their score gives them.
    """

    scores: Tensor
    routed: Tensor
    passed: Tensor
    places: Tensor | None = None
    valid: Tensor | None = None
    gated: bool = True

    @property
    def executed(self) -> Tensor:
        """``(R,)`` int64, the tokens that pass."""
        return self.passed.sum(1)

    @property
    def slots(self) -> int:
        """The tokens that every row is computed with, those that fill it up included."""
        return (self.scores if self.places is None else self.places).shape[1]

    def excess(self) -> Tensor:
        """``(R, N)``, g − 1 with the bounded gate g = 2·sigmoid(r); 0 for tokens that always pass."""
        return torch.where(self.routed, 2 * self.scores.sigmoid() - 1, 0.0) if self.gated else self.scores * 0

    def gathered(self, hidden: Hidden) -> Hidden:
        """The passing tokens alone: states ``(R, K, C)``, and masks and pooled places that fit them."""
        if self.places is None:
            return hidden
        pooled = hidden.pooled
        if isinstance(pooled, Tensor):
            pooled = self.passed.cumsum(1).gather(1, pooled[:, None]).squeeze(1) - 1
        return Hidden(take_tokens(hidden.states, self.places), self._mask(hidden.mask), pooled)

    def _mask(self, mask: Tensor | None) -> Tensor | None:
        if mask is None or mask.dim() == 2 or self.places is None:
            return self.valid
        places = self.places[:, None, :, None]
        among = torch.take_along_dim(torch.take_along_dim(mask, places, 2), places.transpose(2, 3), 3)
        return among if self.valid is None else among & self.valid[:, None, None, :]

    def __deepcopy__(self, memo: dict[int, Any]) -> Selection:
        """A copy of a model starts without the graph of the last pass, which torch cannot copy."""
        return replace(self, scores=self.scores.detach())


def flat_places(places: Tensor, tokens: int) -> Tensor:
    """``(R, K)`` places in rows of N tokens as ``(R·K,)`` places in all rows one after the other."""
    starts = torch.arange(places.shape[0], device=places.device) * tokens
    return (places + starts[:, None]).flatten()


def take_tokens(states: Tensor, places: Tensor) -> Tensor:
    """The tokens of ``(R, N, C)`` at ``places (R, K)``: ``(R, K, C)``, copied row by row."""
    rows, tokens, width = states.shape
    return states.reshape(-1, width).index_select(0, flat_places(places, tokens)).view(rows, -1, width)


def put_tokens(states: Tensor, places: Tensor, values: Tensor) -> Tensor:
    """A copy of ``(R, N, C)`` with ``values (R, K, C)`` at ``places (R, K)``."""
    rows, tokens, width = states.shape
    flat = states.reshape(-1, width).index_copy(0, flat_places(places, tokens), values.reshape(-1, width))
    return flat.view(rows, tokens, width)
