"""The gap between confidence and accuracy in each confidence bin: what the calibration errors are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.binning import CALIBRATION_BINS, bin_index
from compress.evaluation.predictions import Columns


def calibration_gaps(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """(n_b/N) (conf(b) − acc(b)) = (1/N) Σ_{i in b} (confidence_i − correct_i) for each of the 15 equal-width bins.

    Positive where the model is over-confident. An empty bin has gap 0.

    Returns:
        ``(15,)``, or ``(R, 15)`` with weights ``(R, N)``.
    """
    correct = columns.labelled(columns.correct).to(torch.float64)
    gap = columns.confidence - correct
    bins = bin_index(columns.confidence)
    if weights is None:
        return gap.new_zeros(CALIBRATION_BINS).index_add_(0, bins, gap) / len(columns)
    sums = gap.new_zeros(len(weights), CALIBRATION_BINS)
    return sums.index_add_(1, bins, weights * gap) / weights.sum(dim=-1, keepdim=True)
