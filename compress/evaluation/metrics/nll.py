"""Negative log-likelihood."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns


def nll(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """−(1/N) Σ_i log p̄_i(y_i) in nats; range [0, ∞), lower is better.

    A strictly proper score (Gneiting and Raftery, JASA 2007). Computed from log-probabilities, so it stays finite
    where a probability underflows.
    """
    return mean(columns.labelled(columns.nll), weights)
