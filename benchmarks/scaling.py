"""How time and FLOPs grow with members, tokens and batch size: ``python benchmarks/scaling.py``.

Three model shapes with random weights, fused at the last quarter of the layers with 4 heads per member: M = 1 to 8,
50 to 1024 tokens, batch 1 to 64, each with the two other dimensions at M = 3, the model's own length, batch 1. Every
figure is a ratio to the library's own model of the same run. ``--update FILE`` writes the tables between the marks of a
page, which is how docs/scaling.md was made; ``--quick`` leaves out what takes more than a few minutes on two cores, and
``--flops`` only counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from compress.allocator import keep_memory
from compress.backbones.registry import ADAPTERS, build_skeleton
from compress.benching.bench import bench
from compress.benching.flops import library_flops
from compress.benching.options import Bench
from compress.benching.result import BenchRow, BenchRun
from compress.opening import parse_source
from compress.transformer.config import Structure
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer

MARKS = re.compile(r"(<!-- scaling -->\n).*?(<!-- end scaling -->)", re.DOTALL)
KEEP, MEMBERS = 4, range(1, 9)
QUICK_TOKENS, QUICK_MEMBERS = 256, (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Shape:
    """A model, and how it is asked for a number of tokens.

    Attributes:
        reference: what ``compress bench`` takes.
        tokens: by the number of tokens, the options that give it; the first is the model's own.
        arguments: of the architecture.
        branch: first layer with M streams.
    """

    reference: str
    tokens: dict[int, dict[str, int]]
    arguments: dict[str, Any]
    branch: int = 9


SHAPES = {
    "ViT-B/16": Shape(
        "timm:vit_base_patch16_224",
        {197: {}, 50: {"image_size": 112}, 401: {"image_size": 320}, 1025: {"image_size": 512}},
        {},
    ),
    "BERT-base": Shape(
        "hf:BertForSequenceClassification",
        {128: {"length": 128}, 50: {"length": 50}, 256: {"length": 256}, 1024: {"length": 1024}},
        {"max_position_embeddings": 1024},
    ),
    "CLIP ViT-B/32": Shape(
        "open_clip:ViT-B-32",
        {50: {}, 197: {"image_size": 448}, 401: {"image_size": 640}, 1025: {"image_size": 1024}},
        {},
    ),
}


@dataclass(frozen=True)
class Point:
    """One measurement: which dimension it belongs to, and its value there."""

    dimension: str
    value: int
    options: dict[str, Any]


def points(shape: Shape, *, quick: bool) -> Iterator[Point]:
    """The points of the three dimensions."""
    own = next(iter(shape.tokens.values()))
    for members in QUICK_MEMBERS if quick else MEMBERS:
        yield Point("members", members, {**own, "members": members})
    for tokens, options in sorted(shape.tokens.items()):
        if not quick or tokens <= QUICK_TOKENS:
            yield Point("tokens", tokens, options)
    for batch in (1, 8) if quick else (1, 4, 16, 64):
        yield Point("batch", batch, {**own, "batch": [batch]})


def measured(shape: Shape, point: Point, repeats: int, dtype: str) -> BenchRun:
    """One run: the library's model, ours, and the fused one (for M = 1 the pruned one)."""
    options = {
        "keep": KEEP,
        "branch_layer": [shape.branch],
        "batch": [1],
        "dtype": [dtype],
        "device": "cpu",
        "repeats": repeats,
        "warmup": 1,
        "separate": False,
        "memory": False,
        **point.options,
    }
    return bench(shape.reference, arguments=shape.arguments, options=Bench.model_validate(options)).runs[0]


def line(name: str, point: Point, run: BenchRun) -> str:
    """A row of the page's table."""
    library, last = run.rows[0], run.rows[-1]
    cells = (name, str(point.value), _milliseconds(library), _milliseconds(last), f"{last.time_ratio:.2f}")
    return f"| {' | '.join(cells)} | {_spread(last, library)} | {last.flops_ratio:.2f} |"


def _milliseconds(row: BenchRow) -> str:
    return f"{row.latency.median_ms:,.0f}"


def _spread(row: BenchRow, library: BenchRow) -> str:
    low, high = (bound / library.latency.median_ms for bound in (row.latency.q25_ms, row.latency.q75_ms))
    return f"{low:.2f}-{high:.2f}"


def flops_rows(name: str, shape: Shape) -> Iterator[str]:
    """FLOPs over those of the library's model, a row per number of tokens; the batch size changes none of them."""
    for tokens, options in sorted(shape.tokens.items()):
        source = parse_source(shape.reference, {"arguments": shape.arguments})
        single = ADAPTERS[source.adapter].untrained(source, options.get("image_size"))
        length = options.get("length")
        library = library_flops(single, length)
        ratios = [count_cost(fused_skeleton(single, members, shape.branch), length=length).flops for members in MEMBERS]
        yield f"| {name} | {tokens} | {' | '.join(f'{flops / library:.2f}' for flops in ratios)} |"


def fused_skeleton(single: Transformer, members: int, branch: int) -> Transformer:
    """A fused model without weights; its members keep KEEP heads, and differ from the branch layer on."""
    structures = []
    for member in range(members):
        kept = []
        for layer, heads in enumerate(single.structure.original_heads):
            first = member if layer >= branch else 0
            kept.append((tuple(sorted((first + slot) % heads for slot in range(KEEP))),))
        structures.append(single.structure.model_copy(update={"kept_heads": tuple(kept)}))
    structure = Structure.side_by_side(structures, branch_layer=branch)
    return build_skeleton(single.config.model_copy(update={"structure": structure}))


TITLES = {
    "members": "Members, at batch 1",
    "tokens": "Tokens, M = 3, batch 1",
    "batch": "Batch size, M = 3",
}


def page(lines: dict[str, list[str]], where: str) -> str:
    """The tables, one per dimension."""
    parts = [where, ""]
    for dimension, rows in lines.items():
        header = f"| model | {dimension} | library ms | fused ms | time × library | quartiles | FLOPs × library |"
        parts += [f"### {TITLES[dimension]}", "", header, "|---|---|---|---|---|---|---|", *rows, ""]
    return "\n".join(parts)


@click.command()
@click.option("--flops", is_flag=True, help="Count FLOPs only, which takes a minute and measures nothing.")
@click.option("--quick", is_flag=True, help="Fewer and smaller points.")
@click.option("--only", type=click.Choice(list(SHAPES)), multiple=True, help="Some of the shapes; repeatable.")
@click.option("--repeats", default=5, show_default=True, help="Timed rounds per point.")
@click.option("--dtype", default="float32", show_default=True, help="Number format.")
@click.option("--update", type=click.Path(path_type=Path, exists=True), help="Page whose tables are replaced.")
def main(flops: bool, quick: bool, only: tuple[str, ...], repeats: int, dtype: str, update: Path | None) -> None:
    """Measure, and print the tables in Markdown."""
    keep_memory()
    if flops:
        numbers = " | ".join(f"M = {members}" for members in MEMBERS)
        rows = [row for name, shape in SHAPES.items() for row in flops_rows(name, shape)]
        click.echo("\n".join([f"| model | tokens | {numbers} |", f"|---|---|{'---|' * len(MEMBERS)}", *rows]))
        return
    lines: dict[str, list[str]] = {dimension: [] for dimension in TITLES}
    loads, where = [], ""
    for name, shape in SHAPES.items():
        if only and name not in only:
            continue
        for point in points(shape, quick=quick):
            run = measured(shape, point, repeats, dtype)
            place = run.environment
            loads.append(run.load or 0.0)
            where = f"{place.device}, {place.threads} threads, {place.dtype}, {place.allocator}, {repeats} rounds"
            lines[point.dimension].append(line(name, point, run))
            click.echo(lines[point.dimension][-1], err=True)
    text = page(lines, f"Measured: {where}; load {min(loads):.1f} to {max(loads):.1f}.")
    if update is not None:
        content = update.read_text(encoding="utf-8")
        update.write_text(MARKS.sub(lambda match: f"{match[1]}{text}{match[2]}", content), encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
