"""``compress bench``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import click

from compress.benching.options import Bench
from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.several import Several, assigned
from compress.cli.shared_options import COMPUTING, MODEL_AND_DATA, RESULT, json_option, named_references
from compress.runtime import DType

COMPARED = ("members", "keep", "trunk_keep", "mlp", "separate", "budget", "capacity")
LISTS = ("branch_layer", "batch", "dtype")


@click.command(
    "bench",
    cls=SectionedCommand,
    examples=(
        "compress bench timm:vit_base_patch16_224 --members 3 --keep 4 --branch-layer 9",
        "compress bench hf:BertForSequenceClassification --length 128 --branch-layer 6,9 --batch 1,8 --dtype bfloat16",
        "compress bench open_clip:ViT-B-32 --argument tower=text --bare --json bench.json -o bench",
        "compress bench fused --against pruned --batch 1,8,32",
    ),
)
@click.argument("model")
@section_option(
    MODEL_AND_DATA,
    "--against",
    multiple=True,
    metavar="[NAME=]MODEL",
    help="A further artifact or model to measure in the same turns; repeatable.",
)
@section_option(
    MODEL_AND_DATA,
    "--argument",
    "arguments",
    multiple=True,
    metavar="NAME=VALUE",
    help="Argument of a family's architecture, such as depth=6; repeatable.",
)
@schema_options(Bench, "Variants", skip=[name for name in Bench.model_fields if name not in COMPARED])
@section_option(
    "Variants",
    "--branch-layer",
    type=Several(click.INT),
    help=f"{Bench.model_fields['branch_layer'].description} Separated by commas.",
)
@section_option(
    COMPUTING,
    "--batch",
    type=Several(click.INT),
    default="1,8",
    show_default=True,
    help=f"{Bench.model_fields['batch'].description} Separated by commas.",
)
@section_option(
    COMPUTING,
    "--dtype",
    type=Several(click.Choice(get_args(DType))),
    default="float32",
    show_default=True,
    metavar="|".join(get_args(DType)),
    help=f"{Bench.model_fields['dtype'].description} Separated by commas.",
)
@schema_options(Bench, COMPUTING, skip=(*COMPARED, *LISTS))
@section_option(
    RESULT,
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder to write the table, the JSON and a picture to.",
)
@json_option()
@message_options
def bench(
    model: str,
    against: tuple[str, ...],
    arguments: tuple[str, ...],
    out: Path | None,
    json_target: str | None,
    **values: Any,
) -> None:
    """Measure time, FLOPs and memory of MODEL and of what could be made of it, beside the library's own model.

    MODEL is an artifact's folder, or a family's model: timm:NAME, open_clip:NAME, or hf: with an id, a folder or a
    class such as BertForSequenceClassification. A family's model gets random weights, which cost as much as trained
    ones, and no weights are fetched; so you see what pruning and fusing would gain before training anything.
    """
    options = read_options(Bench, values)
    given = assigned(arguments, "--argument")
    others = named_references(against, "--against")

    from compress.benching.bench import bench as run_bench

    result = run_bench(model, out, against=others, arguments=given, options=options)
    written = "" if out is None else f"\nwritten to {out}"
    emit(f"{result.table()}{written}", json.loads(result.to_json()), json_target)
