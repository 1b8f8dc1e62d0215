"""``compress export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import (
    RESULT,
    json_option,
    model_details,
    model_options,
    open_given_model,
)
from compress.exporting.options import Export


@click.command(
    "export",
    cls=SectionedCommand,
    examples=(
        "compress export fused -o fused.onnx",
        "compress export pruned/member-0 -o member.onnx --opset 20",
        "compress export fused -o fused.pt2 --overwrite",
    ),
)
@click.argument("model", metavar="ARTIFACT")
@model_options()
@schema_options(Export, "Exporting")
@section_option(
    RESULT,
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write: .onnx, or .pt2 for a program of torch.export.",
)
@section_option(RESULT, "--overwrite", is_flag=True, help="Replace a file that is there.")
@json_option()
@message_options
def export(model: str, out: Path, overwrite: bool, json_target: str | None, **values: Any) -> None:
    """Write ARTIFACT as one file that onnxruntime, or torch without this package, runs.

    The file gives the probabilities, which are the mean over the members, and the logits of every member. It is kept
    only when it answers like the model. Models with budgets or routers, and sets of separate members, are refused.
    """
    options = read_options(Export, values)

    from compress.exporting.export import export as export_model
    from compress.exporting.target import check_file_target

    check_file_target(out, overwrite=overwrite, inputs=(model,))
    result = export_model(open_given_model(model, model_details(values)), out, options=options, overwrite=overwrite)
    plain = {"schema": "compress/export", "schema_version": 1, **result.to_plain()}
    emit(result.table(), plain, json_target)
