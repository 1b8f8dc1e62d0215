"""``compress prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import (
    COMPUTING,
    data_options,
    json_option,
    model_options,
    open_given_data,
    open_given_model,
    output_options,
)
from compress.pruning.options import Prune
from compress.runtime import Runtime


@click.command(
    "prune",
    cls=SectionedCommand,
    examples=(
        "compress prune builtin:digits-vit -o pruned --data builtin:digits#calibration --keep 6 --branch-layer 3",
        "compress prune timm:vit_base_patch16_224 --weights vit.safetensors -o pruned --data ./calibration --keep 0.33",
        "compress prune hf:./my-bert -o pruned --data reviews.csv --text-column text --label-column stars",
        "compress prune MODEL -o wider --data D --keep 8 --scores pruned/scores.safetensors",
    ),
)
@click.argument("model")
@data_options("Labelled calibration set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.")
@model_options()
@schema_options(Prune, "Pruning")
@section_option(
    "Pruning",
    "--scores",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Scores of an earlier call on the same model and data, instead of scoring again.",
)
@output_options()
@json_option()
@schema_options(Runtime, COMPUTING)
@message_options
def prune(
    model: str,
    data: str,
    text_column: str | None,
    label_column: str | None,
    weights: str | None,
    labels: tuple[str, ...],
    templates: tuple[str, ...],
    scores: Path | None,
    out: Path,
    overwrite: bool,
    json_target: str | None,
    **values: Any,
) -> None:
    """Prune attention heads of MODEL into several copies (members) that keep different heads.

    MODEL is an artifact's folder, timm:NAME, hf:ID-or-folder, open_clip:NAME or builtin:digits-vit.
    """
    options, runtime = read_options(Prune, values), read_options(Runtime, values)

    from compress.pruning.prune import prune as prune_model

    from compress.artifact.folder import check_target

    check_target(out, overwrite=overwrite)
    result = prune_model(
        open_given_model(model, weights, labels, templates),
        out,
        data=open_given_data(data, text_column, label_column),
        options=options,
        runtime=runtime,
        scores=scores,
        overwrite=overwrite,
    )
    emit(result.table(), result.to_plain(), json_target)
