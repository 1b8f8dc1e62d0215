"""The threshold of an uncertainty score above which a model abstains."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compress.errors import DataError


def coverage_threshold(scores: Tensor, coverage: float) -> float:
    """The lowest threshold at which at least ``coverage`` of the samples are answered (score ≤ threshold).

    Args:
        scores: ``(N,)``, high for uncertain samples; N ≥ 1.
        coverage: in (0, 1].
    """
    # Rounded first: 0.9 · 10 is 9.000000000000002 in another order of operations.
    answered = max(1, math.ceil(round(coverage * len(scores), 9)))
    return float(scores.sort().values[answered - 1])


def risk_threshold(scores: Tensor, correct: Tensor, risk: float) -> float:
    """The highest threshold at which at most ``risk`` of the answered samples are wrong.

    This is the share on these samples; on others it is about that for a set that is large enough. Samples of equal
    score are answered together.

    Args:
        scores: ``(N,)``, high for uncertain samples; N ≥ 1.
        correct: ``(N,)`` bool.
        risk: in [0, 1).

    Raises:
        DataError: even the most certain samples are wrong more often.

    Source: Geifman and El-Yaniv, NeurIPS 2017 (arXiv 1705.08500).
    """
    values, index, sizes = torch.unique(scores, return_inverse=True, return_counts=True)
    errors = torch.zeros(len(values), dtype=torch.float64).index_add_(0, index, (~correct).to(torch.float64))
    risks = errors.cumsum(0) / sizes.cumsum(0)
    allowed = torch.nonzero(risks <= risk).flatten()
    if not len(allowed):
        lowest = float(risks.min())
        raise DataError(
            f"no threshold keeps the errors at {risk:.2%}: the lowest share on these samples is {lowest:.2%}",
            where="--target-risk",
            fix="allow a higher risk, choose another score or a better model",
        )
    return float(values[allowed[-1]])


def answered(scores: Tensor, correct: Tensor, threshold: float) -> tuple[float, float]:
    """Coverage and risk of a threshold: the share of samples at or below it, and the share of errors among these."""
    kept = scores <= threshold
    return float(kept.to(torch.float64).mean()), float((~correct[kept]).to(torch.float64).mean())
