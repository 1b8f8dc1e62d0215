"""Accuracy and calibration when the test inputs are corrupted, against the severity of the corruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from compress.evaluation.report.look import INK, Look, add_legend, heading, legend_height, new_figure, shares, shortened
from compress.evaluation.report.picture import Picture
from compress.evaluation.report.words import counted, decimal, percent, tick
from compress.evaluation.result import EvaluationResult, ShiftPoint

EXPLANATION = (
    "Blur, noise and the like make inputs harder: a model may err more on them, but it should also become less sure, "
    "so that its calibration error stays low. The last picture tells the corruptions apart."
)


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
    accuracies = {
        model.name: {
            corruption: fmean(values)
            for corruption in result.corruptions
            if (values := _accuracies(result, model.name, corruption))
        }
        for model in result.models
    }
    if any(accuracies.values()):
        yield _draw_corruptions(result.corruptions, accuracies, look)


def _accuracies(result: EvaluationResult, model: str, corruption: str) -> list[float]:
    """Of one model under one corruption, at each severity."""
    return [
        point.accuracy
        for point in result.shift
        if (point.model, point.corruption) == (model, corruption) and point.accuracy is not None
    ]


def _curve(result: EvaluationResult, model: str, figure: _Figure) -> Severities:
    clean = next(entry for entry in result.models if entry.name == model).metrics.get(figure.metric)
    values: dict[int, list[float]] = {} if clean is None else {0: [clean]}
    for point in result.shift:
        value = figure.read(point)
        if point.model == model and value is not None:
            values.setdefault(point.severity, []).append(value)
    return dict(sorted(values.items()))


def _draw(figure: _Figure, curves: Mapping[str, Severities], look: Look, corruptions: int) -> Picture:
    drawing = new_figure(270 + legend_height(len(curves)))
    axes = drawing.subplots()
    for name, curve in curves.items():
        axes.plot(
            list(curve),
            [fmean(values) for values in curve.values()],
            color=look.colour(name),
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
    add_legend(drawing, axes)
    heading(axes, figure.title, f"mean of {counted(corruptions, 'corruption', 'corruptions')}")
    shown = "; ".join(
        f"{name} from {figure.show(fmean(curve[min(curve)]))} to {figure.show(fmean(curve[max(curve)]))}"
        for name, curve in curves.items()
    )
    description = f"{figure.title} from the clean inputs to the most severe corruption: {shown}."
    return Picture(f"shift-{figure.name}", drawing, description)


def _draw_corruptions(corruptions: Sequence[str], accuracies: Mapping[str, Mapping[str, float]], look: Look) -> Picture:
    """A row per corruption with a mark per model, at its mean accuracy over the severities."""
    drawing = new_figure(90 + 30 * len(corruptions) + legend_height(len(accuracies)))
    axes = drawing.subplots()
    step = min(0.2, 0.7 / len(accuracies))
    for place, (model, found) in enumerate(accuracies.items()):
        offset = (place - (len(accuracies) - 1) / 2) * step
        axes.plot(
            list(found.values()),
            [corruptions.index(corruption) + offset for corruption in found],
            linestyle="none",
            marker=look.marker(model),
            markersize=8,
            color=look.colour(model),
            markeredgecolor=INK,
            markeredgewidth=0.6,
            label=shortened(model),
        )
    axes.set_yticks(range(len(corruptions)), [corruption.replace("_", " ") for corruption in corruptions])
    axes.set(ylim=(len(corruptions) - 0.5, -0.5), xlim=(0, 1.02), xlabel="right answers, mean over the severities")
    shares(axes, x=True)
    add_legend(drawing, axes)
    heading(axes, "Accuracy by corruption")
    shown = "; ".join(
        f"{corruption.replace('_', ' ')}: "
        + ", ".join(
            f"{model} {percent(found[corruption])}" for model, found in accuracies.items() if corruption in found
        )
        for corruption in corruptions
    )
    return Picture("shift-corruptions", drawing, f"Accuracy by corruption, mean over the severities. {shown}.")
