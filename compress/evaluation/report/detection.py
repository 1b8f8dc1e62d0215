"""Detection of foreign inputs: how uncertain a model is on known and foreign inputs, and its ROC curve."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pydantic import FiniteFloat
from torch import Tensor

from compress.evaluation.metrics.detection import detect
from compress.evaluation.metrics.ood_auroc import ood_auroc
from compress.evaluation.metrics.registry import DEFAULT_SCORE, OOD_SCORES
from compress.evaluation.predictions import Columns
from compress.evaluation.report.look import (
    INK,
    MUTED,
    SMALL,
    Look,
    add_legend,
    heading,
    legend_height,
    new_figure,
    shares,
    shortened,
)
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import decimal
from compress.options import Options

EXPLANATION = (
    "Foreign inputs belong to none of the classes, so the model should doubt them: the further the outline lies to the "
    "right of the filled shape, and the closer the curve to the upper left corner, the better it notices them."
)
BINS = 30
# Models that are nearly certain of half of the known inputs need a logarithmic axis: else all of them share one bin.
NEARLY_CERTAIN = 0.02
LEAST_DOUBT = 1e-6
CURVE_POINTS = 201


class DetectionOfSet(Options):
    """One model's scores on the test set and on one foreign set. The score is 1 - maximum probability."""

    model: str
    dataset: str
    auroc: FiniteFloat
    edges: tuple[FiniteFloat, ...]
    """Edges of the histogram's bins; scores below the first count in the first bin."""
    known: tuple[FiniteFloat, ...]
    """Share of the test inputs in each bin."""
    foreign: tuple[FiniteFloat, ...]
    """Share of the foreign inputs in each bin."""
    false_positive_rate: tuple[FiniteFloat, ...]
    """Test inputs taken for foreign, from the strictest threshold on."""
    true_positive_rate: tuple[FiniteFloat, ...]
    """Foreign inputs noticed, at the same thresholds."""


def score_edges(tests: Iterable[Columns]) -> tuple[float, ...]:
    """Edges of bins in which the known inputs of all models spread out: of equal width, or of equal ratio."""
    doubts = [1 - columns.confidence.numpy() for columns in tests if len(columns)]
    if not doubts or min(float(np.median(doubt)) for doubt in doubts) >= NEARLY_CERTAIN:
        return tuple(np.linspace(0, 1, BINS + 1).tolist())
    least = min(float(np.quantile(doubt, 0.1)) for doubt in doubts)
    decade = math.floor(math.log10(max(least, LEAST_DOUBT)))
    return tuple(np.logspace(decade, 0, BINS + 1).tolist())


def measure_detection(
    model: str, dataset: str, test: Columns, foreign: Columns, edges: Sequence[float]
) -> DetectionOfSet:
    """Histograms with these edges, and the ROC curve, of the default score.

    Raises:
        UnavailableMetricError: a set is empty, or logits are not finite.
    """
    score = OOD_SCORES[DEFAULT_SCORE]
    known_scores, foreign_scores = score(test), score(foreign)
    detection = detect(known_scores, foreign_scores)
    noticed, mistaken = (counts.numpy() for counts in detection.counts())
    chosen = np.unique(np.linspace(0, len(noticed) - 1, CURVE_POINTS).round().astype(int))
    return DetectionOfSet(
        model=model,
        dataset=dataset,
        auroc=float(ood_auroc(detection)),
        edges=tuple(edges),
        known=_shares(known_scores, edges),
        foreign=_shares(foreign_scores, edges),
        false_positive_rate=tuple((mistaken[chosen] / mistaken[-1]).tolist()),
        true_positive_rate=tuple((noticed[chosen] / noticed[-1]).tolist()),
    )


def _shares(scores: Tensor, edges: Sequence[float]) -> tuple[float, ...]:
    counts, _ = np.histogram(scores.numpy().clip(edges[0], edges[-1]), bins=edges)
    return tuple((counts / len(scores)).tolist())


def draw_scores(models: Sequence[DetectionOfSet], look: Look, position: int) -> Picture:
    """One row per model: the test set's scores filled, the foreign set's as an outline."""
    dataset = models[0].dataset
    figure = new_figure(72 + 74 * len(models))
    rows = figure.subplots(len(models), 1, sharex=True, squeeze=False)[:, 0]
    for axes, entry in zip(rows, models, strict=True):
        axes.stairs(entry.known, entry.edges, fill=True, color=look.colour(entry.model), alpha=0.75, linewidth=0)
        axes.stairs(entry.foreign, entry.edges, color=INK, linewidth=1.4)
        axes.set(ylim=(0, max(*entry.known, *entry.foreign) * 1.08), yticks=[])
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        heading(axes, shortened(entry.model), f"AUROC {decimal(entry.auroc)}")
    _label_doubt(rows[-1], models[0].edges)
    handles = [Patch(color=MUTED, alpha=0.75, linewidth=0), Line2D([], [], color=INK, linewidth=1.4)]
    labels = ["known inputs", f"foreign inputs: {shortened(dataset, 20)}"]
    figure.legend(handles, labels, loc="outside upper left", ncols=2, fontsize=SMALL, borderaxespad=0.2)
    aurocs = ", ".join(f"{entry.model} {decimal(entry.auroc)}" for entry in models)
    return Picture(
        picture_name("scores", dataset, position),
        figure,
        f"Histograms of doubt on known inputs and on {dataset}, one row per model. AUROC: {aurocs}.",
    )


def _label_doubt(axes: Axes, edges: Sequence[float]) -> None:
    axes.set_xlabel("doubt: 1 − probability of the likeliest class")
    if edges[0] == 0:
        shares(axes, x=True)
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.4%}".replace("%", "").rstrip("0").rstrip(".") + "%")
        axes.xaxis.set_minor_formatter(lambda share, _: "")
    axes.set_xlim(edges[0], edges[-1])


def draw_roc(models: Sequence[DetectionOfSet], look: Look, position: int) -> Picture:
    """The ROC curves of all models for one foreign set."""
    dataset = models[0].dataset
    figure = new_figure(300 + legend_height(len(models), inside=True))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 2.5)))
    for entry in models:
        axes.plot(
            entry.false_positive_rate,
            entry.true_positive_rate,
            color=look.colour(entry.model),
            linestyle=look.dash(entry.model),
            label=f"{shortened(entry.model, 20)}  {decimal(entry.auroc)}",
        )
    shares(axes, x=True, y=True)
    axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.02))
    axes.set(xlabel="known inputs that raise a false alarm", ylabel="foreign inputs noticed")
    add_legend(figure, axes, "lower right", title="area under the curve", title_fontsize=SMALL)
    heading(axes, f"Noticing {shortened(dataset)}")
    aurocs = ", ".join(f"{entry.model} {decimal(entry.auroc)}" for entry in models)
    return Picture(
        picture_name("roc", dataset, position),
        figure,
        f"ROC curves for {dataset}; area under the curve: {aurocs}.",
    )
