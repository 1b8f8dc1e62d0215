"""How many heads inputs get: against how hard they are, layer by layer, and for the extremes."""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from PIL import Image
from pydantic import FiniteFloat
from scipy.stats import spearmanr

from compress.data.base import Dataset
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.input_use import InputUse
from compress.evaluation.predictions import Columns
from compress.evaluation.report.examples import shown_image, shown_text
from compress.evaluation.report.look import FAINT, MUTED, SMALL, WIDTH, Look, add_legend, heading, new_figure, shortened
from compress.evaluation.report.picture import Picture, picture_name
from compress.evaluation.report.words import decimal, percent, signed, tick
from compress.evaluation.unavailable import UnavailableMetricError
from compress.options import Options

EXPLANATION = (
    "A model with budgets computes only some of its attention heads, more for some inputs than for others. Worth its "
    "price is a budget that rises with difficulty: with the loss that the first model has on the input."
)
GROUPS = 10
SHOWN = 6
_ROW, _TOP, _LEFT, _BAR = 30.0, 40.0, 2.0, 60.0


class DifficultyGroup(Options):
    """A tenth of the inputs, by the loss of the reference model."""

    loss: FiniteFloat
    """Its mean, nats."""
    mean: FiniteFloat
    """Share of the heads that ran."""
    low: FiniteFloat
    """5th percentile of the share."""
    high: FiniteFloat
    """95th percentile."""


class BudgetExample(Options):
    """One input and what it got."""

    id: str
    share: FiniteFloat
    text: str | None = None
    image: str | None = None
    """A PNG in base64."""


class BudgetUse(Options):
    """The budgets of one model on the test set."""

    model: str
    reference: str
    """The model whose loss says what is hard."""
    groups: tuple[DifficultyGroup, ...]
    """The easiest first."""
    correlation: FiniteFloat | None
    """Spearman's, between share and loss; null when either is the same for all inputs."""
    layers: tuple[FiniteFloat, ...]
    """Mean share per layer."""
    cheap_layers: tuple[FiniteFloat, ...]
    """The same for the tenth of the inputs with the fewest heads."""
    expensive_layers: tuple[FiniteFloat, ...]
    """The same for the tenth with the most."""
    cheap: tuple[BudgetExample, ...]
    expensive: tuple[BudgetExample, ...]


def measure_budget_use(
    model: str, use: InputUse, reference: str, columns: Columns, evaluation: Evaluation
) -> BudgetUse:
    """Reduce what every input got.

    Args:
        model: its name.
        use: what its inputs got.
        reference: name of the model whose loss says what is hard.
        columns: of that model.
        evaluation: has the inputs.

    Raises:
        UnavailableMetricError: there are no labels, or the model has no budgets.
    """
    share, layers = use.budget, use.heads
    if share is None or layers is None:
        raise UnavailableMetricError("the model has no budgets")
    loss = columns.labelled(columns.nll)
    order = torch.argsort(share, stable=True)
    tenth = max(1, len(order) // GROUPS)
    constant = share.unique().numel() == 1 or loss.unique().numel() == 1
    return BudgetUse(
        model=model,
        reference=reference,
        groups=tuple(
            _group(share[own], loss[own]) for own in torch.argsort(loss, stable=True).tensor_split(GROUPS) if len(own)
        ),
        correlation=None if constant else float(spearmanr(share.numpy(), loss.numpy()).statistic),
        layers=_means(layers),
        cheap_layers=_means(layers[order[:tenth]]),
        expensive_layers=_means(layers[order[-tenth:]]),
        cheap=tuple(_example(int(row), share, evaluation.test, columns) for row in order[:SHOWN]),
        expensive=tuple(_example(int(row), share, evaluation.test, columns) for row in order.flip(0)[:SHOWN]),
    )


def _group(share: torch.Tensor, loss: torch.Tensor) -> DifficultyGroup:
    low, high = torch.quantile(share, torch.tensor([0.05, 0.95], dtype=share.dtype)).tolist()
    return DifficultyGroup(loss=float(loss.mean()), mean=float(share.mean()), low=low, high=high)


def _means(layers: torch.Tensor) -> tuple[float, ...]:
    return tuple(layers.double().mean(0).tolist())


def _example(row: int, share: torch.Tensor, test: Dataset | None, columns: Columns) -> BudgetExample:
    value = None if test is None else test[row].value
    image = None
    if isinstance(value, Image.Image):
        buffer = io.BytesIO()
        shown_image(value).convert("RGB").save(buffer, format="PNG")
        image = base64.b64encode(buffer.getvalue()).decode()
    text = shown_text(value) if isinstance(value, str) else None
    return BudgetExample(id=columns.ids[row], share=float(share[row]), text=text, image=image)


def draw_difficulty(data: BudgetUse, look: Look, position: int) -> Picture:
    """The share of the heads from the easiest to the hardest tenth of the inputs."""
    figure = new_figure(250)
    axes = figure.subplots()
    places = np.arange(len(data.groups))
    colour = look.colour(data.model)
    axes.fill_between(
        places,
        [group.low for group in data.groups],
        [group.high for group in data.groups],
        color=colour,
        alpha=0.2,
        linewidth=0,
        label="90 % of the inputs",
    )
    axes.plot(places, [group.mean for group in data.groups], color=colour, marker="o", markersize=4, label="mean")
    axes.set(ylim=(0, min(1.0, max(group.high for group in data.groups) * 1.25)), ylabel="share of the heads that run")
    axes.set(xlabel=f"tenths of the inputs by the loss of {shortened(data.reference, 18)}, hardest right")
    axes.set_xticks(
        places, [decimal(group.loss) if number % 3 == 0 else "" for number, group in enumerate(data.groups)]
    )
    axes.yaxis.set_major_formatter(tick(percent))
    add_legend(figure, axes, "lower right")
    known = "" if data.correlation is None else f"Spearman {signed(f'{data.correlation:+.2f}')}"
    heading(axes, f"{shortened(data.model, 22)}: budget and difficulty", known)
    shown = ", ".join(f"{percent(group.mean)} at a loss of {decimal(group.loss)}" for group in data.groups)
    return Picture(picture_name("budget-difficulty", data.model, position), figure, f"Share of the heads: {shown}.")


def draw_layers(data: BudgetUse, look: Look, position: int) -> Picture:
    """The share of the heads in every layer."""
    figure = new_figure(240)
    axes = figure.subplots()
    places = range(len(data.layers))
    colour = look.colour(data.model)
    for values, dash, label in (
        (data.expensive_layers, (0, (5, 1.6)), "tenth with most heads"),
        (data.layers, "-", "all inputs"),
        (data.cheap_layers, (0, (1.4, 1.4)), "tenth with fewest heads"),
    ):
        axes.plot(places, values, color=colour, linestyle=dash, marker="o", markersize=3, label=label)
    axes.set(
        ylim=(0, min(1.02, max(data.expensive_layers) * 1.35)), xlabel="layer", ylabel="share of the heads that run"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(tick(percent))
    add_legend(figure, axes, "upper right")
    heading(axes, f"{shortened(data.model)}: heads per layer")
    shown = ", ".join(f"layer {layer} {percent(share)}" for layer, share in enumerate(data.layers))
    return Picture(
        picture_name("budget-layers", data.model, position), figure, f"Share of the heads that run: {shown}."
    )


def draw_inputs(data: BudgetUse, look: Look, position: int) -> Picture:
    """The inputs with the fewest and the most heads."""
    rows = len(data.cheap) + len(data.expensive)
    height = _TOP + rows * _ROW + 40
    figure = new_figure(height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.text(_LEFT, 14, f"{shortened(data.model)}: fewest and most heads", fontweight="bold")
    axes.set(xlim=(0, WIDTH), ylim=(height, 0), autoscale_on=False)
    axes.axis("off")
    top = _TOP
    for title, examples in (("fewest heads", data.cheap), ("most heads", data.expensive)):
        axes.text(_LEFT, top - 4, title, fontsize=SMALL, color=MUTED)
        for number, example in enumerate(examples):
            _draw_example(axes, example, top + number * _ROW, look.colour(data.model))
        top += len(examples) * _ROW + 20
    shown = "; ".join(f"{example.id} {percent(example.share)}" for example in (*data.cheap, *data.expensive))
    description = f"Inputs with the fewest and the most heads: {shown}."
    return Picture(picture_name("budget-inputs", data.model, position), figure, description)


def _draw_example(axes: Axes, example: BudgetExample, top: float, colour: str) -> None:
    """A bar as long as the share, then the input."""
    axes.add_patch(Rectangle((_LEFT, top + 6), _BAR, 10, facecolor=FAINT, linewidth=0))
    axes.add_patch(Rectangle((_LEFT, top + 6), _BAR * example.share, 10, facecolor=colour, linewidth=0))
    axes.text(_LEFT + _BAR + 6, top + 11, percent(example.share), fontsize=SMALL, va="center")
    left = _LEFT + _BAR + 52
    if example.image is not None:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(example.image))))
        wide = 26 * pixels.shape[1] / pixels.shape[0]
        axes.imshow(pixels, extent=(left, left + wide, top + 25, top - 1), aspect="auto", interpolation="nearest")
        left += wide + 6
    axes.text(left, top + 11, shortened(example.text or example.id, 36), fontsize=SMALL, va="center")
