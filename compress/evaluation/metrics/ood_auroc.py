"""Area under the ROC curve of out-of-distribution detection."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.metrics.detection import Detection


def ood_auroc(detection: Detection, weights: Tensor | None = None) -> Tensor:
    """P(s_out > s_in) + P(s_out = s_in)/2; range [0, 1], higher is better, 0.5 is chance.

    Fawcett, Pattern Recognition Letters 2006. Exact over all thresholds, in float64, ties counted by half: with the
    score's sign inverted the value is 1 − AUROC. torchmetrics would squash unbounded scores through a sigmoid,
    which creates ties, and sums in float32.
    """
    positive, negative = detection.counts(weights)
    return torch.trapezoid(positive, negative, dim=-1) / (positive[..., -1] * negative[..., -1])
