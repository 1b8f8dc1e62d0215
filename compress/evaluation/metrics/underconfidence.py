"""Under-confidence: the part of the expected calibration error from bins that promise too little."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.calibration_gaps import calibration_gaps
from compress.evaluation.predictions import Columns


def underconfidence(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Σ_b (n_b/N) max(acc(b) − conf(b), 0) over 15 equal-width bins; range [0, 1], lower is better.

    The bins of the expected calibration error (Guo et al., ICML 2017), one sign of the gap only.
    """
    return (-calibration_gaps(columns, weights)).clamp(min=0.0).sum(dim=-1)
