"""Adaptive expected calibration error."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.binning import CALIBRATION_BINS
from compress.evaluation.predictions import Columns


def adaptive_calibration_error(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """Σ_b (n_b/N) |acc(b) − conf(b)| over 15 bins of equal size, ordered by confidence; range [0, 1], lower is better.

    Nixon et al., CVPR workshops 2019 (arXiv 1904.01685), for the predicted class. When 15 does not divide N the first
    N mod 15 bins hold one sample more. Samples of equal confidence share their mean accuracy, so the value does not
    depend on the order of the data.
    """
    correct = columns.labelled(columns.correct).to(torch.float64)
    groups = columns.confidence_groups
    size = groups.sums(None, weights)
    gap = groups.sums(columns.confidence - correct, weights)
    upto, gap_upto = size.cumsum(dim=-1), gap.cumsum(dim=-1)
    total = upto[..., -1:]
    edges = _bin_edges(total)
    # An edge inside a group takes the group's gap in proportion to its samples below the edge.
    group = torch.searchsorted(upto, edges)
    above = (upto.gather(-1, group) - edges) / size.gather(-1, group).clamp(min=1)
    at_edge = gap_upto.gather(-1, group) - above * gap.gather(-1, group)
    return torch.diff(at_edge, dim=-1).abs().sum(dim=-1) / total.squeeze(-1)


def _bin_edges(total: Tensor) -> Tensor:
    """Ranks that separate the bins, ``(..., bins + 1)``, from the number of samples ``(..., 1)``."""
    bins = torch.arange(CALIBRATION_BINS + 1, dtype=torch.float64)
    return bins * (total // CALIBRATION_BINS) + torch.minimum(bins, total % CALIBRATION_BINS)
