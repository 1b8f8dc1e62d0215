"""Samples grouped by equal score: what every metric that ranks samples starts from.

A sort would order tied samples arbitrarily and make a metric depend on the order of the data. With groups, a metric
treats tied samples alike: a threshold never parts them, or the expectation over their orders is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

# Under bootstrap weights, neighbouring groups are joined to at most this many cells of about equal size. Up to this
# many distinct scores nothing changes; beyond, a percentile moves by far less than between two seeds, and
# a resample costs one pass instead of several.
CELLS = 4096


@dataclass(frozen=True, eq=False)
class TieGroups:
    """N samples in T groups of equal score.

    Attributes:
        index: ``(N,)`` int64, each sample's group; groups are in ascending order of the score.
        sizes: ``(T,)`` int64.
    """

    index: Tensor
    sizes: Tensor

    def sums(self, column: Tensor | None = None, weights: Tensor | None = None) -> Tensor:
        """Σ w_i x_i over each group, in ascending order of the score, float64.

        Args:
            column: ``(N,)``, or ``None`` for x = 1.
            weights: ``(R, N)`` draws of each sample, or ``None`` for w = 1.

        Returns:
            ``(T,)``, or ``(R, min(T, CELLS))`` with weights.
        """
        if weights is None:
            return self.sizes.to(torch.float64) if column is None else _add(self.index, column, len(self.sizes))
        index, cells = self._cells
        terms = weights if column is None else weights * column
        return terms.new_zeros(len(weights), cells).index_add_(1, index, terms)

    @cached_property
    def _cells(self) -> tuple[Tensor, int]:
        groups = len(self.sizes)
        if groups <= CELLS:
            return self.index, groups
        cell = (self.sizes.cumsum(0) - 1) * CELLS // len(self.index)
        return cell[self.index], CELLS


def group_ties(scores: Tensor) -> TieGroups:
    """Group the samples of equal score ``(N,)``."""
    _, index, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    return TieGroups(index, sizes)


def _add(index: Tensor, column: Tensor, groups: int) -> Tensor:
    return torch.zeros(groups, dtype=torch.float64).index_add_(0, index, column.to(torch.float64))
