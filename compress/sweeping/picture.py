"""The picture of a sweep: what every point costs and how good it is."""

from __future__ import annotations

import io
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from compress.evaluation.report.look import INK, MUTED, drawing, heading, new_figure
from compress.evaluation.report.palette import LIGHT, model_role
from compress.evaluation.report.words import percent, quantity, tick
from compress.sweeping.result import ACCURACY, ECE, SINGLE, SweepPoint, SweepResult

PANEL_WIDTH, HEIGHT = 300.0, 320.0
PNG_DPI = 200
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def draw_pareto(result: SweepResult) -> dict[str, bytes]:
    """One panel per figure against FLOPs, by file suffix ``png`` and ``svg``; the same result gives the same bytes.

    Colours tell numbers of members, markers tell branch layers, and the number beside a point is that of the heads
    kept per layer. The grey line joins the points that none beats in the panel.
    """
    look = _Look(result)
    with drawing():
        figure = new_figure(HEIGHT, PANEL_WIDTH * len(result.qualities))
        panels = figure.subplots(1, len(result.qualities), squeeze=False)[0]
        for axes, metric in zip(panels, result.qualities, strict=True):
            _draw_panel(axes, result, metric, look)
        figure.legend(handles=look.handles(), loc="outside lower left", ncols=6, handletextpad=0.2)
        return {suffix: _saved(figure, suffix) for suffix in ("png", "svg")}


class _Look:
    """Colour by members, marker by branch layer."""

    def __init__(self, result: SweepResult) -> None:
        swept = [point for point in result.points if point.name != SINGLE]
        members = sorted({point.members for point in swept})
        branches = sorted({point.branch_layer or 0 for point in swept})
        self._colours = {number: LIGHT[model_role(position)] for position, number in enumerate(members)}
        self._markers = dict(zip(branches, cycle(_MARKERS), strict=False))

    def of(self, point: SweepPoint) -> dict[str, object]:
        """Arguments of ``Axes.plot``."""
        single = point.name == SINGLE
        return {
            "marker": "*" if single else self._markers[point.branch_layer or 0],
            "color": INK if single else self._colours[point.members],
            "markersize": 13 if single else 8,
            "linestyle": "none",
            "markeredgecolor": INK,
            "markeredgewidth": 0.6,
        }

    def handles(self) -> list[Line2D]:
        """What the legend shows."""
        shown = [_handle("*", INK, "single model")]
        for number, colour in self._colours.items():
            shown.append(_handle("o", colour, f"{number} member{'s' * (number > 1)}"))
        for branch, marker in self._markers.items():
            shown.append(_handle(marker, MUTED, f"branch at {branch}"))
        return shown


def _handle(marker: str, colour: str, label: str) -> Line2D:
    return Line2D([], [], marker=marker, color=colour, label=label, linestyle="none", markersize=8)


def _draw_panel(axes: Axes, result: SweepResult, metric: str, look: _Look) -> None:
    known = [point for point in result.points if point.flops is not None and point.metrics.get(metric) is not None]
    best = result.frontier([metric])
    line = sorted((point.flops or 0.0, point.metrics[metric] or 0.0) for point in known if point.name in best)
    axes.plot(*zip(*line, strict=True), color=MUTED, linewidth=1.2, drawstyle="steps-post", alpha=0.7)
    for point in known:
        place = point.flops or 0.0, point.metrics[metric] or 0.0
        bounds = point.intervals.get(metric)
        if bounds is not None:
            axes.plot([place[0]] * 2, [bounds.low, bounds.high], color=MUTED, linewidth=0.8, alpha=0.5)
        axes.plot([place[0]], [place[1]], **look.of(point))  # type: ignore[arg-type]
        if point.keep is not None:
            axes.annotate(f"{point.keep}", place, xytext=(5, 4), textcoords="offset points", fontsize=8, color=MUTED)
    axes.margins(0.12)
    axes.xaxis.set_major_formatter(tick(quantity))
    axes.yaxis.set_major_formatter(tick(percent))
    axes.set(xlabel="FLOPs per input; numbers: heads kept")
    title, better = _words(metric)
    heading(axes, title, better)


def _words(metric: str) -> tuple[str, str]:
    if metric == ACCURACY:
        return "Accuracy", "higher is better"
    if metric == ECE:
        return "Calibration error", "lower is better"
    return f"Detecting {metric.split('/')[1]}", "AUROC, higher is better"


def _saved(figure: Figure, suffix: str) -> bytes:
    """Without a date or a version, so that the same figure gives the same bytes."""
    buffer = io.BytesIO()
    metadata = {"Software": None} if suffix == "png" else {"Date": None, "Creator": None}
    figure.savefig(buffer, format=suffix, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()
