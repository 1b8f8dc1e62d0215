"""Detection of out-of-distribution samples by one score: the counts behind AUROC, AUPR and FPR95.

Convention: out-of-distribution is the positive class, and a score is high for out-of-distribution inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compress.evaluation.ties import TieGroups, group_ties


@dataclass(frozen=True, eq=False)
class Detection:
    """Scores of ``N_in`` in-distribution samples followed by ``N_out`` out-of-distribution samples.

    Attributes:
        groups: all samples, grouped by equal score.
        outside: ``(N_in + N_out,)`` float64, 1 for out-of-distribution.
    """

    groups: TieGroups
    outside: Tensor

    def counts(self, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Positives and negatives at or above each threshold, from the strictest on: ``(..., T + 1)`` float64.

        A threshold lies between two distinct scores; the first flags nothing, the last everything.

        Args:
            weights: ``(R, N_in + N_out)`` draws of each sample, or ``None`` for one each.
        """
        positive = self.groups.sums(self.outside, weights)
        negative = self.groups.sums(None, weights) - positive
        return _from_the_top(positive), _from_the_top(negative)


def detect(inside: Tensor, outside: Tensor) -> Detection:
    """Rank the scores ``(N_in,)`` of in-distribution and ``(N_out,)`` of out-of-distribution samples."""
    labels = torch.cat([torch.zeros_like(inside), torch.ones_like(outside)]).to(torch.float64)
    return Detection(group_ties(torch.cat([inside, outside])), labels)


def _from_the_top(counts: Tensor) -> Tensor:
    descending = counts.flip(-1).cumsum(-1)
    return torch.cat([torch.zeros_like(descending[..., :1]), descending], dim=-1)
