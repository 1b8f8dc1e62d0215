"""False-positive rate at 95 % true-positive rate of out-of-distribution detection."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.detection import Detection


def ood_fpr95(detection: Detection, weights: Tensor | None = None) -> Tensor:
    """FP / N_in at the first threshold where TP / N_out ≥ 0.95; range [0, 1], lower is better.

    The share of in-distribution samples flagged when 95 % of the out-of-distribution ones are. Liang et al.,
    ICLR 2018 (arXiv 1706.02690), there with the classes exchanged. Thresholds lie between distinct scores: samples
    of equal score are flagged together.
    """
    positive, negative = detection.counts(weights)
    first = (100 * positive < 95 * positive[..., -1:]).sum(dim=-1, keepdim=True)
    return negative.gather(-1, first).squeeze(-1) / negative[..., -1]
