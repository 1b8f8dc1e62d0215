"""The speed targets of fused models, in one table: ``python benchmarks/targets.py``.

ViT-B/16 with M = 3 and 4 of 12 heads, branching at layers 9, 6 and 0, and BERT-base at 128 tokens branching at layer 9,
each at batch 1 and 8 on random weights: time over that of the library's own model and, in a second column, over this
project's single model, whose last layer computes the pooled token only, as that of every fused model does. All variants
of a row's batch are measured in turns. ``bare`` is the time over that of the model's own matrix products without
anything between them (target: 1.10). The targets are set for bfloat16 on two cores with matrix units
(``--dtype bfloat16``); without such units bfloat16 says nothing, and float32 shows the ratios of the arithmetic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.allocator import keep_memory
from compress.benching.bench import bench
from compress.benching.options import Bench
from compress.benching.result import BenchRow, BenchRun

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViT-B/16": ("timm:vit_base_patch16_224", {"branch_layer": (9, 6, 0)}),
    "BERT-base": ("hf:BertForSequenceClassification", {"branch_layer": (9,), "length": 128}),
}
# By model, branch layer and batch size: time over that of the library's model.
TARGETS = {
    ("ViT-B/16", 9, 1): 0.80,
    ("ViT-B/16", 9, 8): 0.97,
    ("ViT-B/16", 6, 1): 1.00,
    ("ViT-B/16", 6, 8): 1.30,
    ("ViT-B/16", 0, 1): 1.40,
    ("ViT-B/16", 0, 8): 2.05,
    ("BERT-base", 9, 1): 1.00,
    ("BERT-base", 9, 8): 1.00,
}
HEADER = ("model", "variant", "batch", "ms", "time", "quartiles", "target", "FLOPs", "time'", "FLOPs'", "bare")


def rows_of(model: str, run: BenchRun) -> list[tuple[str, ...]]:
    """The table's lines of one run."""
    library = run.rows[0].latency.median_ms
    bare = {row.name.removesuffix(", bare"): row.latency.median_ms for row in run.rows if row.kind == "bare"}
    return [_line(model, run.batch, row, library, bare.get(row.name)) for row in run.rows if row.kind != "bare"]


def _line(model: str, batch: int, row: BenchRow, library: float, bare: float | None) -> tuple[str, ...]:
    target = TARGETS.get((model, -1 if row.branch_layer is None else row.branch_layer, batch))
    met = "" if target is None else f"{target:.2f} {'met' if row.time_ratio <= target else 'MISSED'}"
    return (
        model,
        row.name,
        str(batch),
        f"{row.latency.median_ms:,.0f}",
        f"{row.time_ratio:.2f}",
        f"{row.latency.q25_ms / library:.2f}-{row.latency.q75_ms / library:.2f}",
        met,
        f"{row.flops_ratio:.2f}",
        f"{row.time_ratio_single:.2f}",
        f"{row.flops_ratio_single:.2f}",
        "" if bare is None else f"{row.latency.median_ms / bare:.2f}",
    )


@click.command()
@click.option("--dtype", default="float32", show_default=True, help="float32 or bfloat16.")
@click.option("--batch", default="1,8", show_default=True, help="Batch sizes, separated by commas.")
@click.option("--only", type=click.Choice(list(MODELS)), help="One of the models.")
@click.option("--repeats", default=7, show_default=True, help="Timed rounds.")
@click.option("--warmup", default=2, show_default=True, help="Rounds before them.")
@click.option("--separate/--no-separate", default=True, help="Measure Deep Ensemble and separate models too.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="Folder for the full results, one per model.")
def main(dtype: str, batch: str, only: str | None, repeats: int, warmup: int, separate: bool, out: Path | None) -> None:
    """Measure, and print a table in Markdown."""
    keep_memory()
    lines: list[tuple[str, ...]] = []
    for name, (reference, own) in MODELS.items():
        if only not in (None, name):
            continue
        options = Bench.model_validate(
            {
                **own,
                "batch": [int(size) for size in batch.split(",")],
                "dtype": [dtype],
                "device": "cpu",
                "repeats": repeats,
                "warmup": warmup,
                "separate": separate,
                "bare": True,
                "memory": False,
            }
        )
        result = bench(reference, None if out is None else out / name.replace("/", "-"), options=options)
        for run in result.runs:
            place = run.environment
            where = (
                f"{place.device}, {place.threads} threads, {place.dtype}, {place.allocator}, load {run.load or 0:.1f}"
            )
            click.echo(f"{name}, batch {run.batch}: {where}, {repeats} rounds", err=True)
            lines += rows_of(name, run)
    for line in (HEADER, tuple("---" for _ in HEADER), *lines):
        click.echo(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
