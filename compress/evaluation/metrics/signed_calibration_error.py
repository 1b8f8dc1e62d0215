"""Signed calibration error."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.calibration_gaps import calibration_gaps
from compress.evaluation.predictions import Columns


def signed_calibration_error(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Σ_b (n_b/N) (conf(b) − acc(b)) = mean confidence − accuracy; range [−1, 1], 0 is best.

    Positive: over-confident; negative: under-confident. It is over-confidence − under-confidence, and their sum is
    the expected calibration error.
    """
    return calibration_gaps(columns, weights).sum(dim=-1)
