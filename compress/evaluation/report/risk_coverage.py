"""Risk-coverage curve: what refusing the least certain inputs buys."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import FiniteFloat

from compress.evaluation.metrics.risk_coverage import risk_coverage
from compress.evaluation.predictions import Columns
from compress.evaluation.report.look import Look, add_legend, heading, legend_height, new_figure, shortened
from compress.evaluation.report.picture import Picture
from compress.evaluation.report.words import percent, tick
from compress.options import Options

EXPLANATION = (
    "A model that knows when it does not know can hand its least certain inputs to a person: from right to left it "
    "answers fewer inputs, and the lower the curve, the fewer of its answers are wrong."
)
POINTS = 101
SHOWN_COVERAGE = 0.8


class RiskCoverageCurve(Options):
    """Error rate among the most confident inputs of one model."""

    model: str
    coverage: tuple[FiniteFloat, ...]
    """Share of inputs that are answered, ascending."""
    risk: tuple[FiniteFloat, ...]
    """Share of wrong answers among them."""


def measure_risk_coverage(model: str, columns: Columns) -> RiskCoverageCurve:
    """The curve at up to 101 coverages; inputs of equal confidence are answered together.

    Raises:
        UnavailableMetricError: the set has no labels, is empty, or logits are not finite.
    """
    groups = risk_coverage(columns)
    answered, wrong = groups.size.cumsum(-1).numpy(), groups.errors.cumsum(-1).numpy()
    total = answered[-1]
    wanted = np.searchsorted(answered, np.linspace(0, 1, POINTS)[1:] * total - 1e-9)
    chosen = np.unique(np.concatenate([[0], wanted.clip(max=len(answered) - 1)]))
    return RiskCoverageCurve(
        model=model,
        coverage=tuple((answered[chosen] / total).tolist()),
        risk=tuple((wrong[chosen] / answered[chosen]).tolist()),
    )


def risk_at(curve: RiskCoverageCurve, coverage: float) -> float:
    """The error rate when at least this share is answered."""
    return curve.risk[min(int(np.searchsorted(curve.coverage, coverage - 1e-9)), len(curve.risk) - 1)]


def draw_risk_coverage(curves: Sequence[RiskCoverageCurve], look: Look) -> Picture:
    """All models in one picture."""
    figure = new_figure(280 + legend_height(len(curves)))
    axes = figure.subplots()
    for curve in curves:
        axes.plot(
            curve.coverage,
            curve.risk,
            color=look.colour(curve.model),
            linestyle=look.dash(curve.model),
            label=shortened(curve.model),
        )
    highest = max(max(curve.risk) for curve in curves)
    axes.set(xlim=(_first_error(curves), 1.005), ylim=(0, max(highest * 1.12, 0.01)))
    axes.set(xlabel="share of inputs answered, most certain first", ylabel="share of answers that are wrong")
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(tick(percent))
    axes.yaxis.set_major_formatter(tick(percent))
    add_legend(figure, axes)
    heading(axes, "Errors among the answered inputs")
    shown = "; ".join(
        f"{curve.model} {percent(risk_at(curve, SHOWN_COVERAGE))}, and {percent(curve.risk[-1])} when it answers all"
        for curve in curves
    )
    return Picture(
        "risk-coverage",
        figure,
        f"Risk-coverage curves. Wrong answers when each model answers the {SHOWN_COVERAGE:.0%} it is surest of: "
        f"{shown}.",
    )


def _first_error(curves: Sequence[RiskCoverageCurve]) -> float:
    """Where the picture begins: at 0, or in the last tenth of the coverage up to which no model errs."""
    without = min(
        next((share for share, risk in zip(curve.coverage, curve.risk, strict=True) if risk > 0), 1.0)
        for curve in curves
    )
    return max(0, math.floor(without * 10) - 1) / 10
