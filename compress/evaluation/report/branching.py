"""What an earlier or later branch layer would have brought and cost, as ``prune`` saw it on its calibration set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from pydantic import FiniteFloat, ValidationError

from compress.artifact.provenance import BRANCH_CANDIDATES
from compress.artifact.store import read_provenance
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.report.look import INK, Look, heading, new_figure, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import listed, percent, quantity, tick
from compress.options import Options

EXPLANATION = (
    "Members that part at a later layer share more work and differ less. For every branch layer that was looked at, "
    "the upper curve shows on how many inputs of the calibration set two members gave different answers, the lower one "
    "what the fused model costs. The larger mark is the one that was taken."
)


class BranchPoint(Options):
    """A branch layer that was looked at."""

    branch_layer: int
    disagreement: FiniteFloat
    """Share of the calibration inputs on which two members answer differently, averaged over pairs."""
    flops: int
    """Of one input through the fused model."""


class BranchChoice(Options):
    """How the branch layer of models with the same history was chosen."""

    models: tuple[str, ...]
    taken: int
    points: tuple[BranchPoint, ...]


def measure_branching(evaluation: Evaluation) -> tuple[BranchChoice, ...]:
    """The choices of the models whose branch layer was found (``branch_layer: auto``)."""
    found: dict[tuple[int, tuple[BranchPoint, ...]], tuple[str, ...]] = {}
    for name, folder in evaluation.folders.items():
        points = _points(read_provenance(folder).notes.get(BRANCH_CANDIDATES))
        if points and name in evaluation.predictions:
            key = evaluation.predictions[name].branch_layer, points
            found[key] = (*found.get(key, ()), name)
    return tuple(BranchChoice(models=names, taken=taken, points=points) for (taken, points), names in found.items())


def _points(noted: Any) -> tuple[BranchPoint, ...]:
    """The layers at which members could be chosen; none when the note is something else."""
    entries = [entry for entry in noted if isinstance(entry, dict)] if isinstance(noted, list) else []
    names = BranchPoint.model_fields
    try:
        return tuple(
            BranchPoint(**{name: entry.get(name) for name in names}) for entry in entries if not entry.get("reason")
        )
    except ValidationError:
        return ()


def draw_branching(data: BranchChoice, look: Look, position: int) -> Picture:
    """Disagreement above, FLOPs below, against the branch layer."""
    figure = new_figure(330)
    upper, lower = figure.subplots(2, 1, sharex=True)
    colour, tips = look.colour(data.models[0]), dict[str, str]()
    for axes, name, label, values, show in (
        (upper, "disagreement", "different answers", [point.disagreement for point in data.points], percent),
        (lower, "flops", "FLOPs per input", [float(point.flops) for point in data.points], quantity),
    ):
        _draw_curve(axes, data, values, colour, name)
        axes.set_ylabel(label)
        axes.yaxis.set_major_formatter(tick(show))
        axes.set_ylim(0, max(values) * 1.15 or 1)
        tips |= _tips(data.points, values, name, label, show)
    lower.set_xlabel("branch layer (right is cheaper)")
    lower.xaxis.set_major_locator(MaxNLocator(integer=True))
    heading(upper, listed([shortened(name, 44 // len(data.models)) for name in data.models]))
    shown = "; ".join(
        f"layer {point.branch_layer} {percent(point.disagreement)} at {quantity(point.flops)} FLOPs"
        for point in data.points
    )
    description = f"Different answers of two members by branch layer: {shown}. Taken: layer {data.taken}."
    return Picture(picture_name("branching", data.models[0], position), figure, description, tips)


def _draw_curve(axes: Axes, data: BranchChoice, values: Sequence[float], colour: str, name: str) -> None:
    layers = [point.branch_layer for point in data.points]
    axes.plot(layers, values, color=colour)
    for layer, value in zip(layers, values, strict=True):
        taken = layer == data.taken
        axes.plot(
            [layer],
            [value],
            marker="o",
            markersize=11 if taken else 5,
            color=colour,
            markeredgecolor=INK,
            markeredgewidth=1.2 if taken else 0,
            gid=f"{name}-{layer}",
            zorder=3,
            clip_on=False,
        )


def _tips(
    points: Sequence[BranchPoint], values: Sequence[float], name: str, label: str, show: Callable[[float], str]
) -> dict[str, str]:
    return {
        f"{name}-{point.branch_layer}": f"branch at layer {point.branch_layer}: {show(value)} {label}"
        for point, value in zip(points, values, strict=True)
    }
