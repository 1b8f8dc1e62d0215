"""Brier score."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns


def brier(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """(1/N) Σ_i Σ_k (p̄_ik − 1[y_i = k])²; range [0, 2], lower is better.

    The sum over classes of Brier (Monthly Weather Review, 1950); some libraries divide by K.
    """
    return mean(columns.labelled(columns.brier), weights)
