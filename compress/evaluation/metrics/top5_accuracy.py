"""Top-5 accuracy."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns
from compress.evaluation.unavailable import UnavailableMetricError


def top5_accuracy(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """(1/N) Σ_i 1[y_i is among the five classes of highest p̄_i]; range [0, 1], higher is better.

    Not defined for five classes or fewer, where it would always be 1.
    """
    if len(columns) and columns.classes <= 5:
        raise UnavailableMetricError(f"top-5 needs more than five classes, there are {columns.classes}")
    return mean(columns.labelled(columns.top5_correct), weights)
