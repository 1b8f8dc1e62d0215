"""``compress sweep``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import CountOrFraction, read_options, schema_options
from compress.cli.several import Several
from compress.cli.shared_options import (
    COMPUTING,
    MODEL_AND_DATA,
    RESULT,
    data_options,
    json_option,
    model_details,
    model_options,
    named_references,
    open_given_data,
    open_given_model,
)
from compress.errors import UsageError
from compress.pruning.options import Prune, check_options
from compress.runtime import Runtime
from compress.sweeping.grid import Grid

GRID = "Grid"
NOT_SWEPT = ("keep", "members", "branch_layer", "min_disagreement")


@click.command(
    "sweep",
    cls=SectionedCommand,
    examples=(
        "compress sweep builtin:digits-vit -o sweep --data builtin:digits#calibration --ood builtin:photos \\",
        "    --validation builtin:digits#test --keep 4,6,8 --members 2,3 --branch-layer 0,3 --trunk-keep 12",
        "compress sweep MODEL -o sweep --data D --validation V --keep 2,4 --members 2,3 --scores pruned",
        "compress sweep MODEL -o sweep --data D --validation V --keep 2,4 --write-recipe k4-m3-b0 chosen.yaml",
    ),
)
@click.argument("model")
@data_options("Labelled calibration set, as for compress prune.", required=False)
@section_option(MODEL_AND_DATA, "--validation", metavar="DATA", help="Labelled set that the points are measured on.")
@section_option(
    MODEL_AND_DATA,
    "--ood",
    multiple=True,
    metavar="[NAME=]DATA",
    help="Foreign data that a model should notice; repeatable.",
)
@section_option(
    MODEL_AND_DATA, "--ood-validation", metavar="DATA", help="Foreign data that circuits are searched with."
)
@model_options()
@section_option(GRID, "--keep", type=Several(CountOrFraction()), default="4", show_default=True, help="Heads kept.")
@section_option(GRID, "--members", type=Several(click.INT), default="3", show_default=True, help="Numbers of members.")
@section_option(
    GRID, "--branch-layer", type=Several(click.INT), default="0", show_default=True, help="Layers where members part."
)
@schema_options(Prune, "Pruning", skip=NOT_SWEPT)
@section_option(
    "Pruning", "--scores", type=click.Path(path_type=Path), metavar="FILE", help="Scores of an earlier compress prune."
)
@section_option(
    RESULT,
    "-o",
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the sweep; a call that was interrupted goes on in it.",
)
@section_option(
    RESULT,
    "--write-recipe",
    "written",
    type=(str, click.Path(path_type=Path)),
    metavar="POINT FILE",
    help="Write a point of the grid, such as k4-m3-b0, as a recipe.",
)
@json_option()
@schema_options(Runtime, COMPUTING)
@message_options
def sweep(
    model: str,
    data: str | None,
    validation: str | None,
    ood: tuple[str, ...],
    ood_validation: str | None,
    scores: Path | None,
    out: Path,
    written: tuple[str, Path] | None,
    json_target: str | None,
    **values: Any,
) -> None:
    """Compare fused models of MODEL over a grid: heads kept, members, branch layer.

    Heads are scored once. The table and the picture show FLOPs against accuracy, calibration error and detection.
    """
    grid = _grid(values)
    options = read_options(Prune, {name: value for name, value in values.items() if name not in NOT_SWEPT})
    runtime, foreign = read_options(Runtime, values), named_references(ood, "--ood")
    check_options(options, ood=ood_validation is not None, scores=scores is not None)

    if written is not None and scores is not None and options.method == "random":
        raise UsageError(
            "a recipe draws random scores anew, by its seed",
            where="--write-recipe",
            fix="leave out --scores and pass --seed",
        )

    from compress.sweeping.recipe_file import SweepSources, point_options, write_recipe
    from compress.sweeping.sweep import sweep as run_sweep

    chosen = None if written is None else point_options(grid, options, written[0])
    unlabelled = {**values, "label_column": None}
    result = run_sweep(
        open_given_model(model, model_details(values)),
        out,
        grid=grid,
        data=None if data is None else open_given_data(data, values),
        validation=None if validation is None else open_given_data(validation, values),
        ood=foreign,
        ood_validation=None if ood_validation is None else open_given_data(ood_validation, unlabelled),
        options=options,
        runtime=runtime,
        scores=scores,
    )
    if written is not None and chosen is not None:
        columns = {name: values[name] for name in ("text_column", "label_column")}
        sources = SweepSources(model, data, model_details(values), validation, foreign, ood_validation, **columns)
        write_recipe(written[1], written[0], chosen, sources, runtime)
    places = f"written to {out}" if written is None else f"written to {out}; recipe: {written[1]}"
    emit(f"{result.table()}\n{places}", json.loads(result.to_json()), json_target)


def _grid(values: Mapping[str, Any]) -> Grid:
    try:
        return Grid.model_validate({name: values[name] for name in Grid.model_fields})
    except ValidationError as error:
        problem = error.errors()[0]
        option = f"--{str(problem['loc'][0]).replace('_', '-')}"
        raise UsageError(f"the value {problem['input']!r} is not allowed ({problem['msg']})", where=option) from None
