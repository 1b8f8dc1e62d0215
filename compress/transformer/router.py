"""Mixture-of-Depths routers: which tokens pass a block, and with which weight.

Source: Raposo et al. 2024, arXiv 2404.02258, section 3; threshold and capacity of token choice after He et al. 2024
(Router-Tuning), arXiv 2410.13184.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from compress.transformer.parts import Hidden
from compress.transformer.routing_config import Choice
from compress.transformer.selection import Selection, real_tokens, routed_count

MOMENTUM = 0.9
"""How much of the old threshold of token choice stays when a batch moves it."""


class Router(nn.Module):
    """Scores every token by r = w·x, in float32 or better, and lets a share of them pass; w starts at 0.

    Expert choice: of a row's n tokens the ⌈capacity · n⌉ highest-ranked pass; ties go to the earlier token. Token
    choice: a token passes when r reaches the threshold, and of every row at least the highest-ranked token. In
    training, when the threshold is still being learned, the percentile of the batch takes its place; the threshold
    follows it, and is fitted when the weights stay as they are.

    Args:
        width: C.
        streams: rows come in so many equal parts, each with its own w and threshold.
        capacity: the share that passes.
        prefix_tokens: the first so many tokens always pass and are not counted.
        choice: see ``RoutingConfig``.
        seed: of the vectors of random choice, which are buffers.

    Attributes:
        training_capacity: the share that passes in training mode, which a schedule may change.
        thresholds: of token choice, ``(streams,)``; −∞ until learned, so that all tokens pass.
    """

    weight: Tensor
    thresholds: Tensor
    rate_factor = 10.0
    """How many times faster than the rest it learns: it starts from nothing."""

    def __init__(
        self,
        width: int,
        *,
        streams: int = 1,
        capacity: float,
        prefix_tokens: int = 0,
        choice: Choice = "expert",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if choice == "random":
            drawn = torch.randn(streams, width, generator=torch.Generator().manual_seed(seed), device="cpu")
            self.register_buffer("weight", drawn)
        else:
            self.weight = nn.Parameter(torch.zeros(streams, width))
        self.streams, self.capacity, self.training_capacity = streams, capacity, capacity
        self.prefix_tokens, self.choice = prefix_tokens, choice
        if choice == "token":
            self.register_buffer("thresholds", torch.full((streams,), -math.inf))

    def forward(self, hidden: Hidden) -> Selection:
        """Choose for rows ``(R, N, C)``; see ``Selection``."""
        scores = self.scores(hidden.states)
        always, real = self._always(hidden), real_tokens(hidden)
        routed = ~always if real is None else real & ~always
        capacity = self.training_capacity if self.training else self.capacity
        if capacity >= 1:
            return Selection(scores, routed, always | routed, gated=self.choice != "random")
        if self.choice != "token":
            pooled = isinstance(hidden.pooled, Tensor)
            fixed = self.prefix_tokens + int(pooled)
            return self._expert_choice(scores, always, routed, capacity, fixed, uniform=real is None and not pooled)
        return self._token_choice(scores, always, routed, capacity)

    def scores(self, states: Tensor) -> Tensor:
        """r ``(R, N)`` of states ``(R, N, C)``, in float32 or better whatever their format."""
        rows, tokens, width = states.shape
        wide = torch.promote_types(states.dtype, torch.float32)
        with torch.autocast(states.device.type, enabled=False):
            by_stream = states.to(wide).reshape(self.streams, -1, width)
            return torch.bmm(by_stream, self.weight.to(wide).unsqueeze(2)).view(rows, tokens)

    def _always(self, hidden: Hidden) -> Tensor:
        """``(R, N)``, True for the prefix and for the one token that the model pools."""
        rows, tokens, _ = hidden.states.shape
        places = torch.arange(tokens, device=hidden.states.device)
        always = (places < self.prefix_tokens).expand(rows, tokens)
        return always | (places == hidden.pooled[:, None]) if isinstance(hidden.pooled, Tensor) else always

    def _expert_choice(
        self, scores: Tensor, always: Tensor, routed: Tensor, capacity: float, fixed: int, *, uniform: bool
    ) -> Selection:
        """The highest-ranked tokens of every row.

        Args:
            fixed: at most so many tokens of a row always pass.
            uniform: no row is padded or has a pooled token of its own, so that the same number passes in all.
        """
        rank = scores.detach().masked_fill(always, torch.inf).masked_fill(~(always | routed), -torch.inf)
        # The number of slots follows from the shape alone: no wait for an accelerator, no other graph per batch.
        tokens = scores.shape[1]
        at_most = min(tokens, fixed + routed_count(capacity, max(0, tokens - fixed)))
        order = rank.argsort(dim=1, descending=True, stable=True)[:, :at_most]
        passing = always.sum(1) + routed_count(capacity, routed.sum(1))
        slots = torch.arange(at_most, device=scores.device)
        passed = torch.zeros_like(routed).scatter(1, order, slots < passing[:, None])
        return self._placed(scores, routed, passed, at_most, None if uniform else passing)

    def _token_choice(self, scores: Tensor, always: Tensor, routed: Tensor, capacity: float) -> Selection:
        """The tokens above the threshold, and the best of every row."""
        rank = scores.detach().masked_fill(~routed, -torch.inf)
        thresholds = self.percentiles(rank, routed, capacity) if self.training else self.thresholds
        reached = rank >= thresholds.repeat_interleave(len(rank) // self.streams)[:, None]
        best = torch.zeros_like(routed).scatter(1, rank.argmax(1, keepdim=True), True)
        passed = always | (routed & (reached | best))
        passing = passed.sum(1)
        return self._placed(scores, routed, passed, int(passing.max()), passing)

    def _placed(self, scores: Tensor, routed: Tensor, passed: Tensor, slots: int, passing: Tensor | None) -> Selection:
        """The selection with the passing tokens in ``slots`` slots in front.

        Args:
            passing: how many of each row pass; None when they fill the slots.
        """
        places = passed.logical_not().to(torch.uint8).argsort(dim=1, stable=True)[:, :slots]
        valid = None if passing is None else torch.arange(slots, device=scores.device) < passing[:, None]
        return Selection(scores, routed, passed, places, valid, gated=self.choice != "random")

    def percentiles(self, scores: Tensor, routed: Tensor, capacity: float) -> Tensor:
        """Per stream the score that a share ``capacity`` of the routed tokens reaches, ``(streams,)``.

        Args:
            scores, routed: as in ``Selection``.
            capacity: the share.
        """
        found = []
        for own, counted in zip(scores.chunk(self.streams), routed.chunk(self.streams), strict=True):
            values = own[counted].sort(descending=True).values
            place = routed_count(capacity, len(values)) - 1
            found.append(values[place] if len(values) else scores.new_tensor(-torch.inf))
        return torch.stack(found)

    @torch.no_grad()
    def fit_thresholds(self, selections: Sequence[Selection]) -> None:
        """Set the thresholds of token choice so that the share of the target capacity passes in these decisions.

        The highest-ranked token of every row passes whatever the threshold, so these are counted first. The share is
        met to one token per stream, unless several have the same score.

        Args:
            selections: of any number of batches.
        """
        for stream in range(self.streams):
            scores, ranks = [], []
            for selection in selections:
                own, routed = (part.chunk(self.streams)[stream] for part in (selection.scores, selection.routed))
                masked = own.masked_fill(~routed, -torch.inf)
                scores.append(own[routed])
                ranks.append(masked.scatter(1, masked.argmax(1, keepdim=True), torch.inf)[routed])
            ranked = torch.cat(ranks).sort(descending=True).values
            if len(ranked):
                threshold = ranked[routed_count(self.capacity, len(ranked)) - 1]
                self.thresholds[stream] = threshold.clamp(max=torch.cat(scores).amax())

    @torch.no_grad()
    def learn_thresholds(self, selections: Sequence[Selection]) -> None:
        """Move the thresholds of token choice towards the batch's percentiles at the target capacity.

        Args:
            selections: of every run of the layer in a forward pass; their tokens are ranked together.
        """
        scores = torch.cat([selection.scores.detach() for selection in selections], dim=1)
        routed = torch.cat([selection.routed for selection in selections], dim=1)
        found = self.percentiles(scores, routed, self.capacity)
        moved = torch.where(self.thresholds.isfinite(), found.lerp(self.thresholds, MOMENTUM), found)
        self.thresholds.copy_(torch.where(found.isfinite(), moved, self.thresholds))  # a batch may have no such token

    def extra_repr(self) -> str:
        return f"streams={self.streams}, capacity={self.capacity}, choice={self.choice!r}"
