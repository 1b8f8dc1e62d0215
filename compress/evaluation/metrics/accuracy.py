"""Accuracy."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns


def accuracy(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """(1/N) Σ_i 1[argmax_k p̄_ik = y_i]; range [0, 1], higher is better. Ties go to the lowest class."""
    return mean(columns.labelled(columns.correct), weights)
