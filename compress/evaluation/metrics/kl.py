"""Mean pairwise Kullback-Leibler divergence of members."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.metrics.mean import mean
from compress.evaluation.predictions import Columns


def kl(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """(1/N) Σ_i 1/(M(M−1)) Σ_{m≠n} KL(p_m ‖ p_n) in nats; range [0, ∞).

    Fort et al. 2019 (arXiv 1912.02757). Neither direction is better by itself. Needs two members.
    """
    return mean(columns.between_members(columns.kl), weights)
