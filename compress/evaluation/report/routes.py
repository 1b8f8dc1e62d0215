"""Which patches or words of a few inputs pass the routed blocks."""

from __future__ import annotations

import base64
import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from PIL import Image

from compress.data.base import Dataset
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.report.examples import shown_image
from compress.evaluation.report.look import FAINT, MUTED, SMALL, WIDTH, Look, new_figure, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.inference.routes import BlockPass, InputRoutes
from compress.options import Options

EXPLANATION = (
    "A routed block computes only the tokens that its router chooses: of an image the patches that stay visible, of a "
    "text the words with a filled square. The others skip the block."
)
MOST_WORDS = 40
_LEFT, _TOP, _GAP, _CELL = 2.0, 34.0, 8.0, 13.0
_WORDS_WIDTH = 130.0
_VEIL = 0.82


class RouteMap(Options):
    """One input of one model."""

    model: str
    routes: InputRoutes
    image: str | None = None
    """A PNG in base64, for images."""


def gather_routes(evaluation: Evaluation) -> tuple[RouteMap, ...]:
    """The inputs that were watched, with their images."""
    return tuple(
        RouteMap(model=model, routes=routes, image=_image(evaluation.test, index, routes))
        for model, watched in evaluation.routes.items()
        for index, routes in enumerate(watched)
    )


def _image(test: Dataset | None, index: int, routes: InputRoutes) -> str | None:
    if test is None or routes.grid is None:
        return None
    value = test[index].value
    if not isinstance(value, Image.Image):
        return None
    buffer = io.BytesIO()
    shown_image(value).convert("RGB").save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def draw_routes(data: RouteMap, look: Look, position: int) -> Picture:
    """Of an image one panel per block; of a text one column per block."""
    draw = _draw_words if data.routes.words is not None else _draw_patches
    return draw(data, look, position)


def _draw_patches(data: RouteMap, look: Look, position: int) -> Picture:
    blocks, grid = data.routes.blocks, data.routes.grid or (1, 1)
    per_row = min(len(blocks), 4)
    side = (WIDTH - 2 * _LEFT - _GAP * (per_row - 1)) / per_row
    tall = side * grid[0] / grid[1]
    rows = -(-len(blocks) // per_row)
    axes = _canvas(_TOP + rows * (tall + 20), f"{shortened(data.model)}: {shortened(data.routes.id)}")
    pixels = _pixels(data.image, grid)
    for number, own in enumerate(blocks):
        left, top = _LEFT + number % per_row * (side + _GAP), _TOP + number // per_row * (tall + 20)
        axes.text(left, top - 4, f"block {own.block}", fontsize=SMALL, color=MUTED)
        axes.imshow(pixels, extent=(left, left + side, top + tall, top), aspect="auto", interpolation="nearest")
        _veil(axes, own, grid, (left, top), (side / grid[1], tall / grid[0]))
    return Picture(picture_name("routes", data.model, position), axes.figure, _description(data))  # type: ignore[arg-type]


def _veil(
    axes: Axes, own: BlockPass, grid: tuple[int, int], corner: tuple[float, float], cell: tuple[float, float]
) -> None:
    """Cover the patches that skip the block, the more the fewer streams they pass."""
    for place, share in enumerate(own.passed):
        row, column = divmod(place, grid[1])
        spot = (corner[0] + column * cell[0], corner[1] + row * cell[1])
        if share < 1:
            axes.add_patch(Rectangle(spot, *cell, facecolor=FAINT, alpha=_VEIL * (1 - share), linewidth=0))


def _draw_words(data: RouteMap, look: Look, position: int) -> Picture:
    words, blocks = (data.routes.words or ())[:MOST_WORDS], data.routes.blocks
    axes = _canvas(_TOP + len(words) * _CELL + 8, f"{shortened(data.model)}: {shortened(data.routes.id)}")
    step = min(26.0, (WIDTH - _WORDS_WIDTH) / len(blocks))
    for number, own in enumerate(blocks):
        left = _WORDS_WIDTH + number * step
        axes.text(left + 5, _TOP - 5, str(own.block), fontsize=SMALL, color=MUTED, ha="center")
        for row, share in enumerate(own.passed[: len(words)]):
            spot = (left, _TOP + row * _CELL + 1)
            axes.add_patch(Rectangle(spot, 10, 10, facecolor=FAINT, linewidth=0))
            if share:
                axes.add_patch(Rectangle(spot, 10, 10, facecolor=look.colour(data.model), alpha=share, linewidth=0))
    for row, word in enumerate(words):
        shown = shortened(word.strip() or "␣", 18)
        axes.text(_WORDS_WIDTH - 8, _TOP + (row + 0.5) * _CELL, shown, fontsize=SMALL, ha="right", va="center")
    return Picture(picture_name("routes", data.model, position), axes.figure, _description(data))  # type: ignore[arg-type]


def _canvas(height: float, title: str) -> Axes:
    figure = new_figure(height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.text(_LEFT, 14, title, fontweight="bold")
    axes.set(xlim=(0, WIDTH), ylim=(height, 0), autoscale_on=False)
    axes.axis("off")
    return axes


def _pixels(image: str | None, grid: tuple[int, int]) -> np.ndarray:
    """The image ``(height, width, 3)``, or a plain ground."""
    if image is None:
        return np.full((*grid, 3), 128, dtype=np.uint8)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("RGB"))


def _description(data: RouteMap) -> str:
    shares = ", ".join(
        f"block {own.block}: {sum(share > 0 for share in own.passed)} of {len(own.passed)}"
        for own in data.routes.blocks
    )
    unit = "patches" if data.routes.words is None else "tokens"
    return f"{unit.capitalize()} of {data.routes.id} that pass in {data.model}: {shares}."
