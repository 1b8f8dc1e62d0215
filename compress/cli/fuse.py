"""``compress fuse``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import json_option, output_options
from compress.fusion.options import Fuse


@click.command(
    "fuse",
    cls=SectionedCommand,
    examples=("compress fuse pruned -o fused", "compress fuse pruned -o fused --mlp grouped --json -"),
)
@click.argument("pruned", type=click.Path(path_type=Path))
@schema_options(Fuse, "Fusing")
@output_options()
@json_option()
@message_options
def fuse(pruned: Path, out: Path, overwrite: bool, json_target: str | None, **values: Any) -> None:
    """Fuse the members in the folder PRUNED, which compress prune wrote, into one model."""
    options = read_options(Fuse, values)

    from compress.fusion.fuse import fuse as fuse_members

    result = fuse_members(pruned, out, options=options, overwrite=overwrite)
    where = f"branching at layer {result.branch_layer}" if result.branch_layer else "branching at the first layer"
    shared = "norms and head" if options.mlp == "grouped" else "MLPs, norms and head"
    equal = "each equal to its pruned copy" if result.exact else f"the members' {shared} averaged"
    plain = {"schema": "compress/fuse", "schema_version": 1, **asdict(result), "folder": str(result.folder)}
    emit(f"{result.members} members in one model, {where}, {equal}\nwritten to {result.folder}", plain, json_target)
