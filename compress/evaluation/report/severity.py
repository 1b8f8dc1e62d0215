"""Accuracy and calibration when the test inputs are corrupted, against the severity of the corruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from compress.evaluation.report.look import Look, heading, new_figure, shortened
from compress.evaluation.report.picture import Picture
from compress.evaluation.report.words import counted, decimal, percent, tick
from compress.evaluation.result import EvaluationResult, ShiftPoint

EXPLANATION = (
    "Blur, noise and the like make inputs harder; a model may err more on them, but it should also become less sure, "
    "so that its calibration error stays low. Lines are means over the corruptions, shades reach from the mildest to "
    "the hardest of them."
)
# With more models than this, the shades would hide each other.
MOST_SHADED = 3


@dataclass(frozen=True)
class _Figure:
    """What is drawn against the severity."""

    name: str
    metric: str
    title: str
    label: str
    show: Callable[[float], str]
    read: Callable[[ShiftPoint], float | None]


_FIGURES = (
    _Figure("accuracy", "cls/accuracy", "Accuracy", "right answers", percent, lambda point: point.accuracy),
    _Figure("ece", "cal/ece", "Calibration error", "gap of confidence and accuracy", percent, lambda point: point.ece),
    _Figure("nll", "cls/nll", "Surprise", "NLL, surprise by the truth", decimal, lambda point: point.nll),
)

Severities = Mapping[int, list[float]]
"""For each severity the values of the corruptions; severity 0 is the clean set."""


def draw_severities(result: EvaluationResult, look: Look) -> Iterator[Picture]:
    """One picture per figure that was measured."""
    for figure in _FIGURES:
        curves = {model.name: _curve(result, model.name, figure) for model in result.models}
        drawn = {name: curve for name, curve in curves.items() if len(curve) > 1}
        if drawn:
            yield _draw(figure, drawn, look, len(result.corruptions))


def _curve(result: EvaluationResult, model: str, figure: _Figure) -> Severities:
    clean = next(entry for entry in result.models if entry.name == model).metrics.get(figure.metric)
    values: dict[int, list[float]] = {} if clean is None else {0: [clean]}
    for point in result.shift:
        value = figure.read(point)
        if point.model == model and value is not None:
            values.setdefault(point.severity, []).append(value)
    return dict(sorted(values.items()))


def _draw(figure: _Figure, curves: Mapping[str, Severities], look: Look, corruptions: int) -> Picture:
    drawing = new_figure(270)
    axes = drawing.subplots()
    for name, curve in curves.items():
        severities, colour = list(curve), look.colour(name)
        if len(curves) <= MOST_SHADED and corruptions > 1:
            lows, highs = [min(values) for values in curve.values()], [max(values) for values in curve.values()]
            axes.fill_between(severities, lows, highs, color=colour, alpha=0.12, linewidth=0)
        axes.plot(
            severities,
            [fmean(values) for values in curve.values()],
            color=colour,
            linestyle=look.dash(name),
            marker=look.marker(name),
            markersize=5,
            label=shortened(name),
        )
    ticks = range(6)
    axes.set_xticks(ticks, ["clean", *(str(tick) for tick in ticks[1:])])
    axes.set(xlabel="severity of the corruption", ylabel=figure.label)
    axes.set_ylim(bottom=0, top=1.02 if figure.name == "accuracy" else None)
    axes.yaxis.set_major_formatter(tick(figure.show))
    axes.legend(loc="lower left" if figure.name == "accuracy" else "upper left")
    heading(axes, figure.title, f"mean of {counted(corruptions, 'corruption', 'corruptions')}")
    shown = "; ".join(
        f"{name} from {figure.show(fmean(curve[min(curve)]))} to {figure.show(fmean(curve[max(curve)]))}"
        for name, curve in curves.items()
    )
    description = f"{figure.title} from the clean inputs to the most severe corruption: {shown}."
    return Picture(f"shift-{figure.name}", drawing, description)
