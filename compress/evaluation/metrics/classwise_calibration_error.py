"""Class-wise expected calibration error."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.predictions import Columns


def classwise_calibration_error(columns: Columns) -> Tensor:
    """(1/K) Σ_k Σ_b (n_bk/N) |freq_k(b) − conf_k(b)| over 15 equal-width bins of p̄_k; range [0, 1], lower is better.

    Kull et al., NeurIPS 2019 (arXiv 1910.12656). conf_k(b) is the mean p̄_k and freq_k(b) the frequency of class k in
    the bin. Only the sums over bins are kept, so it has no bootstrap form.
    """
    return columns.labelled(columns.class_bin_gaps).abs().sum(dim=1).mean() / len(columns)
