"""Errors by confidence: what the metrics of selective classification start from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compress.evaluation.predictions import Columns


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Groups of samples of equal confidence, the most confident first; T groups.

    Attributes:
        size: ``(..., T)`` float64, samples in the group (draws, under bootstrap weights; a group may have none).
        errors: ``(..., T)`` float64, wrong predictions in the group.
    """

    size: Tensor
    errors: Tensor


def risk_coverage(columns: Columns, weights: Tensor | None = None) -> RiskCoverage:
    """Sizes and errors of the groups; raises ``UnavailableMetricError`` without labels."""
    wrong = (~columns.labelled(columns.correct)).to(torch.float64)
    groups = columns.confidence_groups
    return RiskCoverage(groups.sums(None, weights).flip(-1), groups.sums(wrong, weights).flip(-1))
