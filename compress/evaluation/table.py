"""The table that ``eval`` prints."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.result import EvaluationResult, ModelResult

GAP = "  "
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
OPTIONAL = ("div/", "budget/", "route/", "cost/")
_LONGEST_NAME = 24
_LONGEST_SET = 10


@dataclass(frozen=True)
class _Column:
    """A column: two header lines, the metric it shows and how."""

    title: str
    subtitle: str
    metric: str
    show: Callable[[float], str]


class _Footnotes:
    """Numbers the reasons why cells are empty, one number per distinct reason."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def mark(self, reason: str) -> str:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return "—" + str(self.reasons.index(reason) + 1).translate(_SUPERSCRIPTS)

    def lines(self) -> list[str]:
        return [
            f"{str(number).translate(_SUPERSCRIPTS)} {reason}" for number, reason in enumerate(self.reasons, start=1)
        ]


def render_table(result: EvaluationResult, width: int = 100) -> str:
    """Rows are models. Columns that do not fit into ``width`` continue in a second block that repeats the names."""
    footnotes = _Footnotes()
    names = ["", "", *(_shorten(model.name, _LONGEST_NAME) for model in result.models)]
    columns = _columns(result)
    cells = [[column.title, column.subtitle, *_cells(result, column, footnotes)] for column in columns]
    blocks = _blocks(names, columns, cells, width)
    notes = [*footnotes.lines(), *_noise(result), _conventions(result)]
    wrapped = [line for note in notes for line in textwrap.wrap(note, width, subsequent_indent="  ")]
    return "\n\n".join([*blocks, "\n".join(wrapped)])


def _columns(result: EvaluationResult) -> list[_Column]:
    columns = [
        _Column("accuracy", "↑", "cls/accuracy", _share),
        _Column("NLL", "↓", "cls/nll", _share),
        _Column("Brier", "↓", "cls/brier", _share),
        _Column("ECE", "↓", "cal/ece", _share),
    ]
    for name in result.ood:
        short = _shorten(name, _LONGEST_SET)
        columns.append(_Column(short, "AUROC ↑", f"ood/{name}/auroc", _share))
        columns.append(_Column(short, "FPR95 ↓", f"ood/{name}/fpr95", _share))
    if result.shift:
        columns.append(_Column("shifted", "acc. ↑", "shift/accuracy", _share))
        columns.append(_Column("shifted", "ECE ↓", "shift/ece", _share))
    columns.append(_Column("members", "disagree", "div/disagreement", _share))
    columns.append(_Column("heads", "run ↓", "budget/mean", _share))
    columns.append(_Column("tokens", "kept ↓", "route/kept", _share))
    columns.append(_Column("params", "↓", "cost/params", _quantity))
    columns.append(_Column("FLOPs", "↓", "cost/flops", _quantity))
    columns.append(_Column("peak MB", "↓", "cost/peak_mb", _three_digits))
    columns.append(_Column("J/input", "↓", "cost/energy_j", _three_digits))
    columns.append(_Column("latency ms ↓", "[quartiles]", "cost/latency_ms", _three_digits))
    # A column of dashes is worth its place for quality, where the reason matters, but not for what was not asked for.
    return [column for column in columns if not column.metric.startswith(OPTIONAL) or _any(result, column)]


def _any(result: EvaluationResult, column: _Column) -> bool:
    return any(model.value(column.metric)[0] is not None for model in result.models)


def _cells(result: EvaluationResult, column: _Column, footnotes: _Footnotes) -> list[str]:
    return [_cell(model, column, footnotes) for model in result.models]


def _cell(model: ModelResult, column: _Column, footnotes: _Footnotes) -> str:
    value, reason = model.value(column.metric)
    if value is None:
        return footnotes.mark(reason or "not computed")
    latency = model.cost.latency
    if column.metric == "cost/latency_ms" and latency is not None:
        return f"{column.show(value)} [{column.show(latency.q25_ms)}–{column.show(latency.q75_ms)}]"
    return column.show(value)


def _noise(result: EvaluationResult) -> list[str]:
    """Which differences from the first model may be chance, and what the others say."""
    first, *others = result.models
    notes = []
    if result.resampling is not None:
        how = f"{result.resampling.level:.0%} paired bootstrap, {result.resampling.resamples} resamples"
        for opening, verdict in (
            (f"Within noise of {first.name} ({how})", "none"),
            (f"Better than {first.name}, beyond noise", "better"),
            (f"Worse than {first.name}, beyond noise", "worse"),
        ):
            found = {model.name: _titles(result, model, verdict) for model in others}
            listed = "; ".join(f"{name} {', '.join(titles)}" for name, titles in found.items() if titles)
            notes += [f"{opening}: {listed}."] if listed else []
    base = first.cost.latency
    slow = [m.name for m in others if base is not None and m.cost.latency is not None and m.cost.latency.overlaps(base)]
    if slow:
        notes.append(f"Latency within noise of {first.name} (quartiles overlap): {', '.join(slow)}.")
    return notes


def _titles(result: EvaluationResult, model: ModelResult, verdict: str) -> list[str]:
    """The columns whose metric is, against the first model, ``better``, ``worse``, or neither (``none``)."""
    known, alike = catalogue(result.ood, result.corruptions), model.within_noise()
    found = []
    for column in _columns(result):
        difference = model.differences.get(column.metric)
        if difference is None:
            continue
        better = known[column.metric].better
        if better == "none" and column.metric not in alike:
            continue
        rising = "higher" if difference.low > 0 else "lower"
        told = "none" if column.metric in alike else "better" if rising == better else "worse"
        if told == verdict:
            found.append(_title(column))
    return found


def _title(column: _Column) -> str:
    if column.metric.startswith("ood/"):
        return f"{column.title} {column.subtitle.split()[0]}"
    return "disagreement" if column.metric.startswith("div/") else column.title


def _conventions(result: EvaluationResult) -> str:
    place = result.environment
    parts = [f"{result.data.samples:,} inputs"]
    if result.ood:
        parts.append(
            "OOD is the positive class, score 1 − max probability, FPR95 at the first threshold with TPR ≥ 0.95"
        )
    if result.corruptions:
        parts.append(f"shifted: mean over {', '.join(result.corruptions)} at severities 1 to 5")
    timed = next((model.cost.latency for model in result.models if model.cost.latency is not None), None)
    if timed is not None:
        batch = f"batch {result.latency_batch}, " if result.latency_batch else ""
        parts.append(f"latency: {batch}median of {timed.n}")
    parts.append(f"{place.device}, {place.threads} threads, {place.dtype}, {place.allocator}")
    return "; ".join(parts) + "."


def _blocks(names: Sequence[str], columns: Sequence[_Column], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Lay out the columns in blocks at most ``width`` wide; columns of one family or set stay together."""
    room = max(map(_width, names))
    blocks: list[list[Sequence[str]]] = [[]]
    used = room
    by_family = groupby(zip(columns, cells, strict=True), key=lambda pair: pair[0].metric.rpartition("/")[0])
    for _, pairs in by_family:
        family = [column for _, column in pairs]
        needed = sum(len(GAP) + max(map(_width, column)) for column in family)
        if blocks[-1] and used + needed > width:
            blocks.append([])
            used = room
        blocks[-1].extend(family)
        used += needed
    return [_block(names, block) for block in blocks]


def _block(names: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    aligned = [_pad(names, left=False), *(_pad(column, left=True) for column in columns)]
    lines = [GAP.join(cells).rstrip() for cells in zip(*aligned, strict=True)]
    rule = "─" * max(map(_width, lines))
    return "\n".join([*lines[:2], rule, *lines[2:]])


def _pad(cells: Sequence[str], *, left: bool) -> list[str]:
    room = max(map(_width, cells))
    return [" " * (room - _width(cell)) + cell if left else cell + " " * (room - _width(cell)) for cell in cells]


def _width(text: str) -> int:
    """Terminal columns of a text: East Asian wide characters take two, combining marks none."""
    marks = sum(unicodedata.combining(character) > 0 for character in text)
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text) - marks


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _share(value: float) -> str:
    return f"{value:.3f}"


def _quantity(value: float) -> str:
    """Three significant digits with a unit prefix: ``86.6M``."""
    prefix = ""
    for larger in ("k", "M", "G", "T", "P"):
        if value < 999.5:
            break
        value, prefix = value / 1000, larger
    return f"{_three_digits(value)}{prefix}" if prefix else f"{value:.0f}"


def _three_digits(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
