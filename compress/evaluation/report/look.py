"""How pictures are drawn: sizes, type, and what distinguishes one model from another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from compress.evaluation.report.palette import LIGHT, MODEL_ROLES, model_role

INK, MUTED, RULE, FAINT, CARD = (LIGHT[role] for role in ("ink", "muted", "rule", "faint", "card"))

# One unit is 1/72 inch on paper and about one CSS pixel on a phone, where a picture is as wide as the screen.
WIDTH = 340
MARGIN = 6
FONT_SIZE = 10.5
SMALL = 9.0
LONGEST_NAME = 28
# A legend of more entries would hide what it explains.
MOST_INSIDE = 4

_DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.4)), (0, (6, 1.5, 1.4, 1.5)))
_MARKERS = ("o", "s", "^", "D")

_STYLE: dict[Any, object] = {
    "axes.axisbelow": True,
    "axes.edgecolor": RULE,
    "axes.facecolor": CARD,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": FONT_SIZE,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": CARD,
    "font.family": "DejaVu Sans",
    "font.size": FONT_SIZE,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "hatch.color": CARD,
    "legend.fontsize": FONT_SIZE,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 2.0,
    "patch.edgecolor": CARD,
    "savefig.facecolor": CARD,
    # The same figure gives the same bytes.
    "svg.hashsalt": "compress",
    "svg.fonttype": "none",
    "text.color": INK,
    # A dollar sign in a model's name is a dollar sign.
    "text.parse_math": False,
    "text.usetex": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 0.0,
    "ytick.major.size": 0.0,
    "xtick.minor.size": 0.0,
    "ytick.minor.size": 0.0,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in the style of the report, whatever the user's matplotlib is set to."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure of ``width`` x ``height`` units."""
    margin = MARGIN / 72
    layout = ConstrainedLayoutEngine(w_pad=margin, h_pad=margin)
    return Figure(figsize=(width / 72, height / 72), layout=layout)


class Look:
    """What each model looks like in every picture; colours run out after six, line styles and markers go on.

    Args:
        models: names in the order of the call.
    """

    def __init__(self, models: Sequence[str]) -> None:
        self._position = {name: position for position, name in enumerate(models)}

    def role(self, model: str) -> str:
        """Name of the model's colour in the page."""
        return model_role(self._position[model])

    def colour(self, model: str) -> str:
        """The model's colour in a picture."""
        return LIGHT[self.role(model)]

    def dash(self, model: str) -> object:
        """The model's line style; models that differ in it need no colour to be told apart."""
        position = self._position[model]
        return _DASHES[(position + position // len(MODEL_ROLES)) % len(_DASHES)]

    def marker(self, model: str) -> str:
        """The model's marker."""
        position = self._position[model]
        return _MARKERS[(position + position // len(MODEL_ROLES)) % len(_MARKERS)]


def shortened(name: str, limit: int = LONGEST_NAME) -> str:
    """A name that fits into a picture; a legend must not start with an underscore, which would hide it."""
    short = name if len(name) <= limit else name[: limit - 1] + "…"
    return f" {short}" if short.startswith("_") else short


def shares(axes: Axes, *, x: bool = False, y: bool = False) -> None:
    """Ticks at every fifth of a share, as percent."""
    fifths = [number / 5 for number in range(6)]
    labels = [f"{share:.0%}" for share in fifths]
    if x:
        axes.set_xticks(fifths, labels)
    if y:
        axes.set_yticks(fifths, labels)


def legend_height(entries: int, *, inside: bool = False) -> float:
    """Units that a picture must be taller by for the legend of ``add_legend``."""
    return 0.0 if inside and entries <= MOST_INSIDE else 16.0 * entries


def add_legend(figure: Figure, axes: Axes, loc: Any = None, **options: Any) -> None:
    """A legend beneath the axes; at ``loc`` inside of them where no curve goes, unless there are many models."""
    if loc is not None and len(axes.get_legend_handles_labels()[1]) <= MOST_INSIDE:
        axes.legend(loc=loc, **options)
    else:
        figure.legend(loc="outside lower left", **{"alignment": "left"} | options)


def heading(axes: Axes, text: str, detail: str = "") -> None:
    """A title at the left edge, and a quieter detail after it."""
    axes.set_title(text, loc="left", fontsize=FONT_SIZE, fontweight="bold", color=INK, pad=8)
    if detail:
        axes.set_title(detail, loc="right", fontsize=SMALL, color=MUTED, pad=8)
