"""``compress budget``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.budgeting.options import Budget
from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, refuse_together, schema_options
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
from compress.runtime import Runtime


@click.command(
    "budget",
    cls=SectionedCommand,
    examples=(
        "compress budget model -o budgeted --data ./train --min 0.1 --max 0.5 --epochs 2",
        "compress budget fused -o budgeted --data ./train --train predictor --calibrate-to 0.25",
        "compress eval budgeted --data ./test --budget 0.5",
    ),
)
@click.argument("model")
@data_options("Labelled training set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.")
@section_option(MODEL_AND_DATA, "--validation", metavar="DATA", help="Labelled set that is measured before and after.")
@section_option(
    MODEL_AND_DATA,
    "--calibration",
    metavar="DATA",
    help="Labelled set for --calibrate-to and for measuring budgets (default: --validation, else training data).",
)
@section_option(MODEL_AND_DATA, "--teacher", metavar="MODEL", help="Model whose predictions are learned too.")
@model_options()
@schema_options(Budget, "Budgets and training", skip=("evaluate_steps", "patience"))
@output_options()
@section_option(
    "Result", "--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER", help="Write TensorBoard events."
)
@json_option()
@schema_options(Runtime, COMPUTING, skip=("batch_size",))
@message_options
def budget(
    model: str,
    data: str,
    validation: str | None,
    calibration: str | None,
    teacher: str | None,
    out: Path,
    overwrite: bool,
    tensorboard: Path | None,
    json_target: str | None,
    **values: Any,
) -> None:
    """Let MODEL choose for every input how many attention heads run, and which; train it for that.

    MODEL is an artifact's folder, single, pruned or fused, or a family's model. The heads that are not chosen are not
    computed. A call that was interrupted goes on when it is repeated.
    """
    refuse_together("steps", "epochs")
    options = read_options(Budget, values)
    runtime = read_options(Runtime, {name: values[name] for name in ("device", "dtype")})

    from compress.artifact.folder import check_target
    from compress.budgeting.budget import budget as budget_model

    check_target(out, overwrite=overwrite, inputs=(model,))
    result = budget_model(
        open_given_model(model, model_details(values)),
        out,
        data=open_given_data(data, values),
        validation=None if validation is None else open_given_data(validation, values),
        calibration=None if calibration is None else open_given_data(calibration, values),
        teacher=teacher,
        options=options,
        runtime=runtime,
        tensorboard=tensorboard,
        overwrite=overwrite,
    )
    emit(result.table(), {"schema": "compress/budget", "schema_version": 1, **result.to_plain()}, json_target)
