"""The top of the page: a card for each model, a few sentences, and the table of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from compress.evaluation.metrics.registry import Metric, catalogue
from compress.evaluation.report.words import (
    DASH,
    counted,
    decimal,
    interval,
    milliseconds,
    percent,
    points,
    quantity,
    size,
    times,
)
from compress.evaluation.result import EvaluationResult, ModelResult

Verdict = Literal["better", "worse", "noise"]
VERDICT_WORDS = {"better": "▲ better", "worse": "▼ worse", "noise": "≈ within noise"}


@dataclass(frozen=True)
class Figure:
    """What a row of the table shows."""

    metric: str
    title: str
    explanation: str
    show: Callable[[float], str]


_QUALITY = (
    Figure("cls/accuracy", "Accuracy", "inputs answered right", percent),
    Figure("cal/ece", "Calibration error", "gap between how sure it is and how often it is right (ECE)", percent),
    Figure("cls/nll", "Surprise", "how unlikely it found the right answers (NLL, in nats)", decimal),
    Figure("cls/brier", "Brier score", "squared error of its probabilities", decimal),
    Figure("sc/aurc", "Error when refusing", "error rate averaged over all shares of refused inputs (AURC)", percent),
)
_MEMBERS = (
    Figure("div/disagreement", "Disagreement", "inputs on which two members answer differently", percent),
    Figure("div/jaccard", "Heads in common", "overlap of the heads that two members keep (Jaccard)", percent),
)
_COST = (
    Figure("cost/params", "Parameters", "", quantity),
    Figure("cost/bytes", "Size on disk", "", size),
    Figure("cost/flops", "Work per input", "floating-point operations (FLOPs), mean", quantity),
    Figure("cost/latency_ms", "Time per batch", "median, with quartiles", milliseconds),
    Figure("cost/throughput", "Inputs per second", "", quantity),
    Figure("cost/peak_mb", "Peak memory", "weights and what one batch adds", lambda megabytes: size(megabytes * 1e6)),
    Figure("cost/energy_j", "Energy per input", "an estimate, in joules", decimal),
    Figure("cost/co2_g", "CO₂ per input", "an estimate, in grams", decimal),
)
_SHIFT = (
    Figure("shift/accuracy", "Accuracy", "mean over the corruptions and severities", percent),
    Figure("shift/ece", "Calibration error", "likewise", percent),
)


@dataclass(frozen=True)
class Cell:
    """One model's figure.

    Attributes:
        value: as in the JSON; None when there is none.
        text: as readers see it.
        detail: its interval or quartiles, or nothing.
        verdict: against the first model; None where nothing can be said.
        reason: why there is no value.
    """

    value: float | None
    text: str
    detail: str = ""
    verdict: Verdict | None = None
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """One figure of all models."""

    metric: str
    title: str
    explanation: str
    arrow: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Card:
    """One model at a glance."""

    name: str
    kind: str
    facts: tuple[tuple[str, str, Cell], ...]
    """Title, metric and figure."""


def table_groups(result: EvaluationResult) -> list[tuple[str, list[Row]]]:
    """The rows of the table by group; rows without any value are left out unless the reason matters."""
    known = catalogue(result.ood, result.corruptions)
    foreign = [figure for name in result.ood for figure in _foreign(name)]
    groups: Sequence[tuple[str, Sequence[Figure]]] = (
        ("Quality", _QUALITY),
        ("Foreign inputs", foreign),
        ("Corrupted inputs", _SHIFT if result.shift else ()),
        ("Members", _MEMBERS),
        ("Cost", _COST),
    )
    rows = ((title, [_row(result, known[figure.metric], figure) for figure in figures]) for title, figures in groups)
    optional = ("Members", "Cost")
    shown = ((title, [row for row in group if title not in optional or _has_value(row)]) for title, group in rows)
    return [(title, group) for title, group in shown if group]


def _foreign(name: str) -> Iterator[Figure]:
    yield Figure(
        f"ood/{name}/auroc",
        f"Notices {name}",
        "chance that a foreign input gets more doubt than a known one (AUROC)",
        decimal,
    )
    yield Figure(
        f"ood/{name}/fpr95",
        f"False alarms, {name}",
        "known inputs flagged when 95\N{NO-BREAK SPACE}% of the foreign are (FPR95)",
        percent,
    )


def _has_value(row: Row) -> bool:
    return any(cell.value is not None for cell in row.cells)


def _row(result: EvaluationResult, metric: Metric, figure: Figure) -> Row:
    arrow = {"higher": "↑", "lower": "↓", "none": ""}[metric.better]
    cells = tuple(_cell(result, model, metric, figure) for model in result.models)
    return Row(figure.metric, figure.title, figure.explanation, arrow, cells)


def _cell(result: EvaluationResult, model: ModelResult, metric: Metric, figure: Figure) -> Cell:
    value, reason = model.value(figure.metric)
    if value is None:
        return Cell(None, DASH, reason=reason or "not computed")
    detail = ""
    if figure.metric in model.intervals:
        bounds = model.intervals[figure.metric]
        detail = interval(bounds.low, bounds.high, figure.show)
    latency = model.cost.latency
    if figure.metric == "cost/latency_ms" and latency is not None:
        detail = interval(latency.q25_ms, latency.q75_ms, figure.show)
    return Cell(value, figure.show(value), detail, _verdict(result, model, metric))


def _verdict(result: EvaluationResult, model: ModelResult, metric: Metric) -> Verdict | None:
    first = result.models[0]
    if model is first or metric.better == "none":
        return None
    if metric.name == "cost/latency_ms" and model.cost.latency is not None and first.cost.latency is not None:
        if model.cost.latency.overlaps(first.cost.latency):
            return "noise"
        return "better" if model.cost.latency.median_ms < first.cost.latency.median_ms else "worse"
    difference = model.differences.get(metric.name)
    if difference is None:
        return None
    if difference.contains(0.0):
        return "noise"
    return "better" if (difference.low > 0) == (metric.better == "higher") else "worse"


def cards(result: EvaluationResult) -> list[Card]:
    """Accuracy, calibration, detection and cost of every model."""
    known = catalogue(result.ood, result.corruptions)
    figures = [*_QUALITY[:2], *(next(_foreign(name)) for name in list(result.ood)[:1])]
    found = []
    for model in result.models:
        facts = [
            (figure.title, figure.metric, _cell(result, model, known[figure.metric], figure)) for figure in figures
        ]
        facts += _relative_costs(result, model, known)
        found.append(Card(model.name, kind_words(model), tuple(facts)))
    return found


def _relative_costs(
    result: EvaluationResult, model: ModelResult, known: dict[str, Metric]
) -> Iterator[tuple[str, str, Cell]]:
    first = result.models[0]
    for figure, title in ((_COST[2], "Work"), (_COST[3], "Time"), (_COST[0], "Parameters")):
        cell, base = _cell(result, model, known[figure.metric], figure), first.value(figure.metric)[0]
        if cell.value is None:
            continue
        if model is not first and base:
            detail = f"{times(cell.value / base)} {first.name}"
            cell = Cell(cell.value, cell.text, detail, cell.verdict)
        else:
            cell = Cell(cell.value, cell.text, {"Work": "FLOPs per input", "Time": "median of a batch"}.get(title, ""))
        yield title, figure.metric, cell


def kind_words(model: ModelResult) -> str:
    """What kind of model it is, for somebody who knows none."""
    if model.kind == "members":
        return f"{model.members} separate models that answer together"
    words = {
        "single": "one model" if model.budget or model.kept_tokens else "one model, nothing removed",
        "pruned": "one model with attention heads removed",
        "fused": f"{counted(model.members, 'member', 'members')} fused into one model",
        "deep_ensemble": f"{counted(model.members, 'model', 'models')} trained apart that answer together",
        "mc_dropout": f"one model asked {counted(model.members, 'time', 'times')} with random dropout",
        "temperature": "one model with its probabilities softened or sharpened",
    }
    return words.get(model.kind, model.kind.replace("_", " ")) + _use_words(model)


def _use_words(model: ModelResult) -> str:
    """What a model with budgets or routers runs, behind the words for its kind."""
    heads = "" if model.budget is None else f"; {percent(model.budget.mean)} of its heads run, on average"
    tokens = (
        "" if model.kept_tokens is None else f"; {percent(model.kept_tokens.mean)} of the tokens pass routed layers"
    )
    return heads + tokens


@dataclass(frozen=True)
class Sentence:
    """One finding, and how it compares with the first model."""

    text: str
    verdict: Verdict | None = None


def sentences(result: EvaluationResult, subject: str) -> list[Sentence]:
    """What the report says about its subject, in a few sentences."""
    first = result.models[0]
    model = next(entry for entry in result.models if entry.name == subject)
    known = catalogue(result.ood, result.corruptions)
    found = []
    for figure in (*_QUALITY[:2], *(next(_foreign(name)) for name in result.ood)):
        value, base = model.value(figure.metric)[0], first.value(figure.metric)[0]
        if value is None:
            continue
        text, verdict = _claim(figure, subject, value), None
        if model is not first and base is not None:
            verdict = _verdict(result, model, known[figure.metric])
            text += _comparison(first.name, base, value - base, verdict)
        found.append(Sentence(f"{text}.", verdict))
    found += _cost_sentence(first, model)
    return found


def _claim(figure: Figure, subject: str, value: float) -> str:
    if figure.metric == "cls/accuracy":
        return f"{subject} answers {percent(value)} of the inputs right"
    if figure.metric == "cal/ece":
        return f"How sure it is and how often it is right are {percent(value)} apart on average"
    name = figure.metric.split("/")[1]
    return f"In {percent(value)} of all pairs it doubts a foreign input ({name}) more than a known one"


def _comparison(first: str, base: float, difference: float, verdict: Verdict | None) -> str:
    words = {"better": ": better", "worse": ": worse", "noise": ", which may be chance", None: ""}
    if percent(difference) == percent(0.0):
        return f", as {first} does"
    more = "more" if difference > 0 else "less"
    return f", {points(abs(difference)).lstrip('+')} {more} than {first} ({percent(base)}){words[verdict]}"


def _cost_sentence(first: ModelResult, model: ModelResult) -> Iterator[Sentence]:
    if model is first:
        return
    ratios = []
    for metric, word in (("cost/flops", "work"), ("cost/latency_ms", "time"), ("cost/params", "parameters")):
        value, base = model.value(metric)[0], first.value(metric)[0]
        if value is not None and base:
            ratios.append(f"{times(value / base)} the {word}")
    if ratios:
        joined = ratios[0] if len(ratios) == 1 else f"{', '.join(ratios[:-1])} and {ratios[-1]}"
        yield Sentence(f"It needs {joined} of {first.name}.")
