"""What a family's models cost and how good they are, in one picture."""

from __future__ import annotations

import io
from itertools import cycle

from families import ENSEMBLE, LONGER, SINGLE
from figures import ACCURACY, LATENCY, Figures, auroc
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compress.evaluation.report.look import MUTED, drawing, heading, new_figure
from compress.evaluation.report.palette import LIGHT, model_role
from compress.evaluation.report.words import percent, tick

PANEL_WIDTH, HEIGHT, DPI = 330.0, 400.0, 160
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WITHOUT_PICTURE = ", temperature"
"""Rows with a temperature cost and classify as those without."""


def draw(own: Figures) -> bytes:
    """PNG: accuracy and detection of foreign sets against latency; small marks are seeds, large ones their means."""
    names = [row.name for row in own.family.rows if not row.name.endswith(WITHOUT_PICTURE)]
    panels = [("Accuracy", ACCURACY), *((f"Detecting {name}", auroc(name)) for name in own.family.foreign)]
    with drawing():
        figure = new_figure(HEIGHT, PANEL_WIDTH * len(panels))
        for axes, (title, metric) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            _panel(axes, own, names, metric)
            heading(axes, title, "higher is better")
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3)
        return _png(figure)


def _panel(axes: Axes, own: Figures, names: list[str], metric: str) -> None:
    markers = cycle(MARKERS)
    for position, name in enumerate(names):
        colour, marker = LIGHT[model_role(position)], next(markers)
        costs = [time / single for time, single in own.pairs(name, SINGLE, LATENCY)]
        axes.plot(costs, own.values(name, metric), marker, color=colour, markersize=3, alpha=0.5)
        mean = own.of(name, metric)
        if mean is not None:
            axes.plot(own.ratio(name, SINGLE, LATENCY).mean, mean.mean, marker, color=colour, markersize=9, label=name)
    for name, style in ((LONGER, ":"), (ENSEMBLE, "--")):
        level = own.of(name, metric)
        if level is not None:
            axes.axhline(level.mean, color=MUTED, linewidth=0.8, linestyle=style, zorder=0)
    axes.set_xlabel("latency × single")
    axes.yaxis.set_major_formatter(tick(percent))
    axes.margins(0.1)


def _png(figure: Figure) -> bytes:
    """Without a version, so that the same figures give the same bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()
