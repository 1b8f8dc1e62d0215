"""The picture of a benchmark: measured time beside the bound that the FLOPs set."""

from __future__ import annotations

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from compress.benching.result import BenchResult, BenchRun
from compress.benching.table import display_name
from compress.evaluation.report.look import INK, MUTED, drawing, heading, new_figure
from compress.evaluation.report.palette import LIGHT, model_role

WIDTH, ROW_HEIGHT, FRAME_HEIGHT, PNG_DPI = 520.0, 20.0, 64.0, 200
TIME, BOUND = LIGHT[model_role(0)], LIGHT[model_role(1)]


def draw(result: BenchResult) -> dict[str, bytes]:
    """A panel per run, by file suffix ``png`` and ``svg``; the same result gives the same bytes.

    A bar is the median time and its whisker the quartiles, a mark the FLOPs, all over those of the library's model.
    """
    heights = [len(run.rows) * ROW_HEIGHT + FRAME_HEIGHT for run in result.runs]
    with drawing():
        figure = new_figure(sum(heights), WIDTH)
        panels = figure.subplots(len(heights), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        for axes, run in zip(panels, result.runs, strict=True):
            _draw_run(axes, run)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=2)
        return {suffix: _saved(figure, suffix) for suffix in ("png", "svg")}


def _draw_run(axes: Axes, run: BenchRun) -> None:
    places = list(range(len(run.rows)))[::-1]
    for place, row in zip(places, run.rows, strict=True):
        per_ms = row.time_ratio / row.latency.median_ms
        low, high = row.latency.q25_ms * per_ms, row.latency.q75_ms * per_ms
        first = place == places[0]
        axes.barh(place, row.time_ratio, height=0.6, color=TIME, alpha=0.55, label="time" if first else None)
        axes.plot([low, high], [place, place], color=INK, linewidth=1.2)
        axes.plot(
            [row.flops_ratio] * 2,
            [place - 0.36, place + 0.36],
            color=BOUND,
            linewidth=2.5,
            label="FLOPs" if first else None,
        )
        axes.annotate(
            f" {row.time_ratio:.2f}×, {row.latency.median_ms:,.0f} ms",
            (max(row.time_ratio, high, row.flops_ratio), place),
            va="center",
            fontsize=8,
            color=MUTED,
        )
    axes.axvline(1.0, color=MUTED, linewidth=0.8, linestyle=":")
    axes.set_yticks(places, [display_name(row) for row in run.rows])
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.25)
    axes.set_xlim(left=0)
    axes.set(xlabel="times the library's own model")
    place_of = run.environment
    heading(axes, f"Batch {run.batch}", f"{run.tokens} tokens, {place_of.dtype}, {place_of.threads} threads")


def _saved(figure: Figure, suffix: str) -> bytes:
    """Without a date or a version, so that the same figure gives the same bytes."""
    buffer = io.BytesIO()
    metadata = {"Software": None} if suffix == "png" else {"Date": None, "Creator": None}
    figure.savefig(buffer, format=suffix, dpi=PNG_DPI, metadata=metadata)
    return buffer.getvalue()
