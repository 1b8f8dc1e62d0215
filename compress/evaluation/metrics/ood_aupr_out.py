"""Area under the precision-recall curve with out-of-distribution as the positive class."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.average_precision import average_precision
from compress.evaluation.metrics.detection import Detection


def ood_aupr_out(detection: Detection, weights: Tensor | None = None) -> Tensor:
    """Average precision, out-of-distribution positive, score as it is; range (0, 1], higher is better.

    Hendrycks and Gimpel, ICLR 2017 (arXiv 1610.02136). Chance is the share of out-of-distribution samples, so the
    value depends on the sizes of the sets.
    """
    positive, negative = detection.counts(weights)
    return average_precision(positive, negative)
