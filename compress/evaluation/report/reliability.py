"""Reliability diagram: is a model right as often as it says?"""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from pydantic import Field, FiniteFloat

from compress.evaluation.binning import CALIBRATION_BINS, bin_index
from compress.evaluation.metrics.expected_calibration_error import expected_calibration_error
from compress.evaluation.predictions import Columns
from compress.evaluation.report.look import INK, MUTED, SMALL, Look, heading, new_figure, shares, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import percent
from compress.options import Options

EXPLANATION = (
    "When a model says “80\N{NO-BREAK SPACE}% sure”, it should be right 8 times out of 10: bars that end on the dashed "
    "line are honest, bars below it mean over-confidence, bars above it needless doubt. Pale bars stand for few inputs,"
    " thin lines for 95\N{NO-BREAK SPACE}% intervals."
)
FEW = 10
"""Inputs; a bar of fewer is pale."""
_Z95 = 1.959964


class ReliabilityBin(Options):
    """The inputs whose confidence falls into one bin."""

    low: FiniteFloat
    high: FiniteFloat
    samples: int = Field(ge=0)
    confidence: FiniteFloat | None = Field(None, description="Mean confidence; null for an empty bin.")
    accuracy: FiniteFloat | None = Field(None, description="Share answered right; null for an empty bin.")
    accuracy_low: FiniteFloat | None = Field(None, description="Lower end of Wilson's 95 % interval.")
    accuracy_high: FiniteFloat | None = Field(None, description="Upper end of Wilson's 95 % interval.")


class Reliability(Options):
    """The reliability diagram of one model."""

    model: str
    accuracy: FiniteFloat
    confidence: FiniteFloat = Field(description="Mean confidence.")
    calibration_error: FiniteFloat = Field(description="cal/ece.")
    bins: tuple[ReliabilityBin, ...]


def measure_reliability(model: str, columns: Columns) -> Reliability:
    """Count right answers by confidence, in the bins of the expected calibration error.

    Raises:
        UnavailableMetricError: the set has no labels, is empty, or logits are not finite.
    """
    correct = columns.labelled(columns.correct).double()
    index = bin_index(columns.confidence)
    samples, right, confidence = (
        index.bincount(weights, minlength=CALIBRATION_BINS).tolist() for weights in (None, correct, columns.confidence)
    )
    bins = []
    for number, (count, hits, total) in enumerate(zip(samples, right, confidence, strict=True)):
        low, high = number / CALIBRATION_BINS, (number + 1) / CALIBRATION_BINS
        if not count:
            bins.append(ReliabilityBin(low=low, high=high, samples=0))
            continue
        least, most = wilson_interval(hits, count)
        bins.append(
            ReliabilityBin(
                low=low,
                high=high,
                samples=count,
                confidence=total / count,
                accuracy=hits / count,
                accuracy_low=least,
                accuracy_high=most,
            )
        )
    return Reliability(
        model=model,
        accuracy=float(correct.mean()),
        confidence=float(columns.confidence.mean()),
        calibration_error=float(expected_calibration_error(columns)),
        bins=tuple(bins),
    )


def wilson_interval(hits: float, count: int) -> tuple[float, float]:
    """95 % interval of a share; Wilson, JASA 1927. Within [0, 1], and sensible for few samples."""
    share = hits / count
    scale = 1 + _Z95**2 / count
    centre = (share + _Z95**2 / (2 * count)) / scale
    half = _Z95 / scale * math.sqrt(share * (1 - share) / count + _Z95**2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def draw_reliability(data: Reliability, look: Look, position: int) -> Picture:
    """Bars of accuracy against the line of honesty; beneath, how often each confidence occurs."""
    figure = new_figure(330)
    upper, lower = figure.subplots(2, 1, height_ratios=(4.2, 1), sharex=True)
    _draw_bars(upper, data, look.colour(data.model))
    heading(upper, shortened(data.model, 20), f"calibration error {percent(data.calibration_error)}")
    total = sum(entry.samples for entry in data.bins)
    occurring = [entry.samples / total for entry in data.bins]
    lower.bar([entry.low for entry in data.bins], occurring, width=1 / len(data.bins), align="edge", color=MUTED)
    lower.set(ylim=(0, max(occurring) * 1.1), yticks=[0, max(occurring)], yticklabels=["0", f"{max(occurring):.0%}"])
    lower.set(xlabel="how sure the model says it is")
    lower.set_ylabel("share of\ninputs", fontsize=SMALL)
    lower.grid(visible=False)
    direction = "over-confident" if data.confidence > data.accuracy else "under-confident"
    description = (
        f"Reliability diagram of {data.model}: on average it is {percent(data.confidence)} sure and right on "
        f"{percent(data.accuracy)} of the inputs, so rather {direction}; calibration error "
        f"{percent(data.calibration_error)}."
    )
    return Picture(picture_name("reliability", data.model, position), figure, description, _tips(data))


def _draw_bars(axes: Axes, data: Reliability, colour: str) -> None:
    width = 1 / len(data.bins)
    for number, entry in enumerate(data.bins):
        if entry.accuracy is None or entry.accuracy_low is None or entry.accuracy_high is None:
            continue
        alpha = 0.85 if entry.samples >= FEW else 0.3
        axes.bar(entry.low, entry.accuracy, width, align="edge", color=colour, alpha=alpha, gid=f"bin-{number}")
        centre = entry.low + width / 2
        axes.plot([centre] * 2, [entry.accuracy_low, entry.accuracy_high], color=INK, linewidth=0.9, alpha=alpha)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1.3, linestyle=(0, (4, 2.5)))
    shares(axes, x=True, y=True)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), ylabel="how often it is right")


def _tips(data: Reliability) -> dict[str, str]:
    return {
        f"bin-{number}": f"{entry.samples} inputs: {percent(entry.confidence)} sure, right on {percent(entry.accuracy)}"
        for number, entry in enumerate(data.bins)
        if entry.confidence is not None and entry.accuracy is not None
    }
