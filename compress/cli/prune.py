"""``compress prune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import (
    COMPUTING,
    MODEL_AND_DATA,
    data_options,
    json_option,
    model_details,
    model_options,
    open_given_data,
    open_given_model,
    output_options,
)
from compress.columns import columns
from compress.errors import UsageError
from compress.pruning.options import Prune, check_options
from compress.runtime import Runtime

if TYPE_CHECKING:
    from compress.pruning.result import PruneResult


@click.command(
    "prune",
    cls=SectionedCommand,
    examples=(
        "compress prune builtin:digits-vit -o pruned --data builtin:digits#calibration --keep 6 --branch-layer 3",
        "compress prune timm:vit_base_patch16_224 --weights vit.safetensors -o pruned --data ./calibration --keep 0.33",
        "compress prune hf:./my-bert -o pruned --data reviews.csv --text-column text --label-column stars",
        "compress prune MODEL -o wider --data D --keep 8 --scores pruned/scores.safetensors",
        "compress prune MODEL -o circuits --data D --ood FOREIGN --method circuit --branch-layer auto",
    ),
)
@click.argument("model")
@data_options(
    "Labelled calibration set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.", required=False
)
@section_option(
    MODEL_AND_DATA, "--ood", metavar="DATA", help="Foreign validation set that circuits are searched with; no labels."
)
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
    data: str | None,
    ood: str | None,
    scores: Path | None,
    out: Path,
    overwrite: bool,
    json_target: str | None,
    **values: Any,
) -> None:
    """Prune attention heads of MODEL into several copies (members) that keep different heads.

    MODEL is an artifact's folder, a folder that timm, transformers or open_clip saved, timm:NAME, hf:ID, open_clip:NAME
    or builtin:digits-vit.
    """
    options, runtime = read_options(Prune, values), read_options(Runtime, values)
    check_options(options, ood=ood is not None, scores=scores is not None)
    if data is None and scores is None and options.method in ("taylor", "circuit"):
        raise UsageError(f"{options.method} needs a calibration set", where="--data", fix="pass --data, or --scores")

    from compress.artifact.folder import check_target
    from compress.pruning.prune import prune as prune_model

    check_target(out, overwrite=overwrite, inputs=(model,))
    result = prune_model(
        open_given_model(model, model_details(values)),
        out,
        data=None if data is None else open_given_data(data, values),
        ood=None if ood is None else open_given_data(ood, {**values, "label_column": None}),
        options=options,
        runtime=runtime,
        scores=scores,
        overwrite=overwrite,
    )
    emit(_table(result), {"schema": "compress/prune", "schema_version": 1, **result.to_plain()}, json_target)


def _table(result: PruneResult) -> str:
    """A row per member: its size and how many heads its layers keep."""
    rows = [("", "parameters", "heads kept per layer"), ("original", f"{result.original_parameters:,}", "")]
    for member, (parameters, heads) in enumerate(zip(result.parameters, result.kept_heads, strict=True)):
        rows.append((f"member-{member}", f"{parameters:,}", " ".join(str(len(layer)) for layer in heads)))
    return "\n".join([*columns(rows, right=(1,)), *result.notes(), f"written to {result.folder}"])
