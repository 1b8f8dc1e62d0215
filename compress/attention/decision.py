"""Which heads a row of a batch runs, and what led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Decision:
    """What an attention with budgets decided in its last forward pass, for R rows.

    Attributes:
        budget: ``(R,)`` s, the share of its heads that a row was given; carries a gradient in training.
        shares: ``(R, slots)`` p, the relevance of each head; a row sums to 1; carries a gradient in training.
        heads: ``(R,)`` int64 k, the heads that count.
        dense: whether all heads were computed, and those that pad the groups with fewer heads.
    """

    budget: Tensor
    shares: Tensor
    heads: Tensor
    dense: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Decision:
        """A copy of a model starts without the graph of the last pass, which torch cannot copy."""
        return Decision(self.budget.detach().clone(), self.shares.detach().clone(), self.heads.clone(), self.dense)
