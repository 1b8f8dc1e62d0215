"""Area under the risk-coverage curve."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.metrics.risk_coverage import RiskCoverage, risk_coverage
from compress.evaluation.predictions import Columns
from compress.evaluation.unavailable import UnavailableMetricError


def aurc(columns: Columns, weights: Tensor | None = None) -> Tensor:
    """∫ r(c) dc, with r(c) the error rate of the c·N most confident samples; range [0, 1], lower is better.

    Geifman and El-Yaniv, NeurIPS 2017 (arXiv 1705.08500). Trapezoids between the coverages 1/N, 2/N, … 1, divided by
    1 − 1/N. For samples of equal confidence it is the expectation over their order. Needs two samples.
    """
    columns.labelled(columns.correct)
    if len(columns) < 2:
        raise UnavailableMetricError("needs at least two inputs")
    curve = risk_coverage(columns, weights)
    total = curve.size.sum(dim=-1)
    # A group may hold no sample of a bootstrap draw.
    first_drawn = (curve.size > 0).to(torch.uint8).argmax(dim=-1, keepdim=True)
    first = (curve.errors.gather(-1, first_drawn) / curve.size.gather(-1, first_drawn)).squeeze(-1)
    last = curve.errors.sum(dim=-1) / total
    return (_sum_of_risks(curve) - (first + last) / 2) / (total - 1)


def _sum_of_risks(curve: RiskCoverage) -> Tensor:
    """Σ_k r(k/N) over k = 1..N.

    In a group of w samples and e errors after W samples and E errors, the expected risks sum to
    Σ_{j=1..w} (E + j e/w) / (W + j) = e + (E − W e/w) (H(W + w) − H(W)), with H the harmonic numbers.
    """
    after, errors_after = curve.size.cumsum(-1), curve.errors.cumsum(-1)
    before, errors_before = after - curve.size, errors_after - curve.errors
    counts = torch.arange(1, int(after.max()) + 1, dtype=torch.float64)
    harmonic = torch.cat([counts.new_zeros(1), counts.reciprocal().cumsum(0)])
    slope = curve.errors / curve.size.clamp(min=1)
    steps = harmonic[after.long()] - harmonic[before.long()]
    return (curve.errors + (errors_before - before * slope) * steps).sum(dim=-1)
