"""Cost against quality: which models are worth their price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from pydantic import FiniteFloat

from compress.evaluation.report.look import INK, MUTED, Look, add_legend, heading, legend_height, new_figure, shortened
from compress.evaluation.report.picture import Picture
from compress.evaluation.report.words import decimal, listed, milliseconds, percent, quantity, tick
from compress.evaluation.result import EvaluationResult, ModelResult
from compress.options import Options

EXPLANATION = (
    "Further left is cheaper. The grey line joins the models that no other beats in both cost and quality; anything "
    "off the line costs more than it needs to. Thin vertical lines are "
    "95\N{NO-BREAK SPACE}% intervals."
)
# Beyond this ratio of the dearest to the cheapest, a linear axis would press the cheap ones together.
LARGEST_LINEAR_RATIO = 8.0


@dataclass(frozen=True)
class Quantity:
    """What an axis shows."""

    metric: str
    title: str
    label: str
    show: Callable[[float], str]
    higher_is_better: bool = False


QUALITIES = (
    Quantity("cls/accuracy", "Accuracy", "right answers (higher is better)", percent, higher_is_better=True),
    Quantity("cls/nll", "Surprise", "NLL, surprise by the truth (lower is better)", decimal),
)
COSTS = (
    Quantity("cost/flops", "work", "FLOPs per input", quantity),
    Quantity("cost/latency_ms", "time", "median time of one batch", milliseconds),
)


class TradeoffPoint(Options):
    """One model."""

    model: str
    cost: FiniteFloat
    quality: FiniteFloat
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None
    on_frontier: bool
    """Whether no other model is at least as good for at most the same cost, and better in one of them."""


class Tradeoff(Options):
    """One cost against one quality."""

    cost: str
    quality: str
    points: tuple[TradeoffPoint, ...]


def measure_tradeoffs(result: EvaluationResult) -> tuple[Tradeoff, ...]:
    """All pairs of a cost and a quality that at least two models have."""
    return tuple(
        Tradeoff(cost=cost.metric, quality=quality.metric, points=points)
        for cost in COSTS
        for quality in QUALITIES
        if len(points := tuple(_points(result.models, cost, quality))) > 1
    )


def _points(models: Sequence[ModelResult], cost: Quantity, quality: Quantity) -> Iterator[TradeoffPoint]:
    sign = -1 if quality.higher_is_better else 1
    values = {model.name: (model.value(cost.metric)[0], model.value(quality.metric)[0]) for model in models}
    known = {name: (x, y) for name, (x, y) in values.items() if x is not None and y is not None}
    for model in models:
        if model.name not in known:
            continue
        x, y = known[model.name]
        beaten = any(
            other_x <= x and sign * other_y <= sign * y and (other_x, other_y) != (x, y)
            for other_x, other_y in known.values()
        )
        bounds = model.intervals.get(quality.metric)
        yield TradeoffPoint(
            model=model.name,
            cost=x,
            quality=y,
            low=None if bounds is None else bounds.low,
            high=None if bounds is None else bounds.high,
            on_frontier=not beaten,
        )


def draw_tradeoff(data: Tradeoff, look: Look) -> Picture:
    """A marker per model, intervals, and the line of those worth their price."""
    cost = next(entry for entry in COSTS if entry.metric == data.cost)
    quality = next(entry for entry in QUALITIES if entry.metric == data.quality)
    figure = new_figure(280 + legend_height(len(data.points)))
    axes = figure.subplots()
    axes.margins(y=0.15)
    for point in data.points:
        if point.low is not None and point.high is not None:
            axes.plot([point.cost] * 2, [point.low, point.high], color=look.colour(point.model), linewidth=1.2)
        axes.plot(
            [point.cost],
            [point.quality],
            linestyle="none",
            marker=look.marker(point.model),
            markersize=9,
            color=look.colour(point.model),
            markeredgecolor=INK,
            markeredgewidth=0.6,
            label=shortened(point.model),
            gid=f"model-{point.model}",
        )
    _draw_frontier(axes, data.points)
    costs = [point.cost for point in data.points]
    if min(costs) > 0 and max(costs) / min(costs) > LARGEST_LINEAR_RATIO:
        axes.set_xscale("log")
        axes.set_xlim(min(costs) / 1.4, max(costs) * 1.4)
    else:
        axes.set_xlim(0, max(costs) * 1.12 or 1)
    axes.xaxis.set_major_formatter(tick(cost.show))
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.yaxis.set_major_formatter(tick(quality.show))
    axes.set(xlabel=f"{cost.label} (left is cheaper)", ylabel=quality.label)
    add_legend(figure, axes, "best", handletextpad=0.2)
    heading(axes, f"{quality.title} against {cost.title}")
    best = listed([point.model for point in data.points if point.on_frontier])
    shown = "; ".join(
        f"{point.model} {quality.show(point.quality)} at {cost.show(point.cost)}" for point in data.points
    )
    tips = {
        f"model-{point.model}": f"{point.model}: {quality.show(point.quality)}, {cost.show(point.cost)}"
        for point in data.points
    }
    name = f"tradeoff-{data.quality.partition('/')[2]}-{data.cost.partition('/')[2]}".replace("_", "-")
    description = f"{quality.title} against {cost.label}: {shown}. Worth their price: {best}."
    return Picture(name, figure, description, tips)


def _draw_frontier(axes: Axes, points: Sequence[TradeoffPoint]) -> None:
    """Steps from model to model, and on to dearer models, which would have to lie beyond the line."""
    frontier = sorted((point.cost, point.quality) for point in points if point.on_frontier)
    far = max(point.cost for point in points) * 100
    costs, qualities = [x for x, _ in frontier], [y for _, y in frontier]
    axes.plot(
        [*costs, far], [*qualities, qualities[-1]], color=MUTED, linewidth=1.3, drawstyle="steps-post", zorder=1.5
    )
