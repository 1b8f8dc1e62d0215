"""Area under the precision-recall curve with in-distribution as the positive class."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.average_precision import average_precision
from compress.evaluation.metrics.detection import Detection


def ood_aupr_in(detection: Detection, weights: Tensor | None = None) -> Tensor:
    """Average precision, in-distribution positive, score inverted; range (0, 1], higher is better.

    Hendrycks and Gimpel, ICLR 2017 (arXiv 1610.02136). Chance is the share of in-distribution samples.
    """
    outside, inside = detection.counts(weights)
    # Counting from the other end: what is not above a threshold is at or below it.
    return average_precision((inside[..., -1:] - inside).flip(-1), (outside[..., -1:] - outside).flip(-1))
