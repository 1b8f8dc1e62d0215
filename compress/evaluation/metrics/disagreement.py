"""Disagreement of members."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns


def disagreement(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Share of inputs on which two members predict different classes, averaged over pairs; range [0, 1].

    Kuncheva and Whitaker, Machine Learning 2003, section 2.1.3 (there for correctness); Fort et al. 2019
    (arXiv 1912.02757). Neither direction is better by itself. Needs two members.
    """
    predicted = columns.between_members(columns.member_predicted)
    pairs = list(combinations(range(columns.members), 2))
    differing = torch.zeros(len(columns), dtype=torch.float64)
    for first, second in pairs:
        differing += predicted[first] != predicted[second]
    return mean(differing / len(pairs), weights)
