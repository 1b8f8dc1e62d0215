"""The result of a benchmark as text."""

from __future__ import annotations

from collections.abc import Sequence

from compress.benching.result import BenchResult, BenchRow, BenchRun
from compress.columns import columns

HEADER = (
    *("variant", "ms", "quartiles", "time", "FLOPs", "time'", "FLOPs'"),
    *("inputs/s", "GFLOP/s", "params M", "peak MB"),
)
NOTE = "time, FLOPs: times those of library, the unmodified model; time', FLOPs': times those of single"


def render_table(result: BenchResult) -> str:
    """A block per run: where it ran, then a line per variant."""
    lines = [f"{result.model}, torch {result.torch}"]
    for run in result.runs:
        lines += [
            "",
            _heading(run),
            *columns([HEADER, *(_cells(row) for row in run.rows)], right=range(1, len(HEADER))),
        ]
        lines += [f"{row.name}: no peak memory, {row.reason}" for row in run.rows if row.reason]
    return "\n".join([*lines, "", NOTE])


def display_name(row: BenchRow) -> str:
    """The variant's name; compiled ones say so."""
    return f"{row.name}, compiled" if row.compiled else row.name


def _heading(run: BenchRun) -> str:
    place = run.environment
    load = "" if run.load is None else f", load {run.load:.1f}"
    where = f"{place.device}, {place.threads} threads, {place.allocator}{load}"
    return f"batch {run.batch}, {run.tokens} tokens, {place.dtype} ({where}; {run.rows[0].latency.n} rounds)"


def _cells(row: BenchRow) -> Sequence[str]:
    time = row.latency
    speed = row.flops * row.throughput / 1e9
    return (
        display_name(row),
        f"{time.median_ms:,.1f}",
        f"{time.q25_ms:,.1f}-{time.q75_ms:,.1f}",
        *(f"{ratio:.2f}" for ratio in (row.time_ratio, row.flops_ratio, row.time_ratio_single, row.flops_ratio_single)),
        f"{row.throughput:,.2f}" if row.throughput < 100 else f"{row.throughput:,.0f}",
        f"{speed:,.1f}" if speed < 100 else f"{speed:,.0f}",
        f"{row.params / 1e6:,.1f}",
        "-" if row.peak_mb is None else f"{row.peak_mb:,.0f}",
    )
