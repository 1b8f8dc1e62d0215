"""How much members differ: in their answers and in the heads they keep."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from pydantic import FiniteFloat

from compress.evaluation.metrics.jaccard import jaccard
from compress.evaluation.predictions import Predictions
from compress.evaluation.report.look import FONT_SIZE, INK, MARGIN, MUTED, SMALL, Look, new_figure, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import percent
from compress.evaluation.unavailable import UnavailableMetricError
from compress.options import Options

EXPLANATION = (
    "Members that always agree add nothing to each other: the left matrix shows on how many inputs two members "
    "give different answers, the right one what part of their heads two members have in common."
)
# Members up to which there is room for figures in the squares, with and without a digit after the point.
_LARGEST_WITH_DIGITS, _LARGEST_WITH_FIGURES = 4, 7

Matrix = tuple[tuple[FiniteFloat, ...], ...]


class Diversity(Options):
    """The members of one model, pair by pair."""

    model: str
    disagreement: Matrix
    """``[member][member]``: share of the inputs on which they predict different classes."""
    overlap: Matrix | None = None
    """``[member][member]``: Jaccard overlap of the kept heads from the branch layer on; null when unknown."""


def measure_diversity(model: str, predictions: Predictions) -> Diversity:
    """Both matrices.

    Raises:
        UnavailableMetricError: a single member, an empty set, or logits that are not finite.
    """
    predicted = predictions.test.between_members(predictions.test.member_predicted)
    differing = tuple(tuple((first != predicted).double().mean(1).tolist()) for first in predicted)
    return Diversity(model=model, disagreement=differing, overlap=_overlap(predictions, len(predicted)))


def _overlap(predictions: Predictions, members: int) -> Matrix | None:
    kept, branch = predictions.kept_heads, predictions.branch_layer
    if kept is None or any(len(groups) != members for groups in kept[branch:]):
        return None

    def pair(first: int, second: int) -> float:
        return jaccard([(groups[first], groups[second]) for groups in kept[branch:]])

    try:
        return tuple(tuple(float(pair(a, b)) for b in range(members)) for a in range(members))
    except UnavailableMetricError:
        return None


def draw_diversity(data: Diversity, look: Look, position: int) -> Picture:
    """The matrices side by side."""
    matrices = [("different answers", "answer", data.disagreement)]
    if data.overlap is not None:
        matrices.append(("heads in common", "heads", data.overlap))
    figure = new_figure(215)
    # The squares leave room beside them; without this it would go to the top and push the labels out.
    figure.set_layout_engine("compressed", w_pad=MARGIN / 72, h_pad=MARGIN / 72)
    panels = figure.subplots(1, 2)
    panels[-1].axis("off")
    colour = look.colour(data.model)
    tips: dict[str, str] = {}
    for axes, (title, key, matrix) in zip(panels, matrices, strict=False):
        axes.axis("on")
        _draw_matrix(axes, matrix, colour, key)
        axes.set_title(title, fontsize=SMALL, color=MUTED)
        tips |= {
            f"{key}-{row}-{column}": f"members {row + 1} and {column + 1}: {percent(value)} {title}"
            for row, values in enumerate(matrix)
            for column, value in enumerate(values)
            if row != column
        }
    figure.suptitle(shortened(data.model), x=0.012, ha="left", fontsize=FONT_SIZE, fontweight="bold")
    pairs = [value for row, values in enumerate(data.disagreement) for value in values[:row]]
    description = (
        f"Diversity of the {len(data.disagreement)} members of {data.model}: two members give different answers on "
        f"{percent(min(pairs))} to {percent(max(pairs))} of the inputs"
    )
    if data.overlap is not None:
        shared = [value for row, values in enumerate(data.overlap) for value in values[:row]]
        description += f", and share {percent(min(shared))} to {percent(max(shared))} of their heads"
    return Picture(picture_name("diversity", data.model, position), figure, f"{description}.", tips)


def _draw_matrix(axes: Axes, matrix: Sequence[Sequence[float]], colour: str, key: str) -> None:
    members = len(matrix)
    largest = max(max((v for c, v in enumerate(values) if c != row), default=0.0) for row, values in enumerate(matrix))
    for row, values in enumerate(matrix):
        for column, value in enumerate(values):
            if row == column:
                continue
            strength = 0.08 + 0.42 * (value / largest if largest > 0 else 0.0)
            axes.add_patch(
                Rectangle(
                    (column - 0.47, row - 0.47),
                    0.94,
                    0.94,
                    facecolor=colour,
                    alpha=strength,
                    linewidth=0,
                    gid=f"{key}-{row}-{column}",
                )
            )
            if members <= _LARGEST_WITH_FIGURES:
                shown = percent(value) if members <= _LARGEST_WITH_DIGITS else f"{value:.0%}"
                axes.text(column, row, shown, ha="center", va="center", fontsize=SMALL, color=INK)
    axes.set(xlim=(-0.5, members - 0.5), ylim=(members - 0.5, -0.5), aspect="equal")
    step = -(-members // 8)
    ticks = range(0, members, step)
    axes.set_xticks(ticks, [str(tick + 1) for tick in ticks])
    axes.set_yticks(ticks, [str(tick + 1) for tick in ticks])
    axes.set_xlabel("member")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
