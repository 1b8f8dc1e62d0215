"""Expected calibration error."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.calibration_gaps import calibration_gaps
from compress.evaluation.predictions import Columns


def expected_calibration_error(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Σ_b (n_b/N) |acc(b) − conf(b)| over 15 equal-width bins of the confidence; range [0, 1], lower is better.

    Naeini et al., AAAI 2015; Guo et al., ICML 2017 (arXiv 1706.04599), eq. 3. Bins are ``[b/15, (b+1)/15)`` and the
    last is closed, so a confidence of exactly 1 belongs to it (torchmetrics 1.9 gives it a bin of its own).
    """
    return calibration_gaps(columns, weights).abs().sum(dim=-1)
