"""``compress route``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
from compress.routing.options import Route
from compress.runtime import Runtime
from compress.tuning.options import Training


@click.command(
    "route",
    cls=SectionedCommand,
    examples=(
        "compress route model -o routed --data ./train --capacity 0.5 --every 2 --epochs 2",
        "compress route fused -o routed --data ./train --blocks auto --calibration ./calibration --train router",
        "compress route model -o routed --data ./train --blocks 4 --capacity 0.25 --blocks 6 --capacity 0.5",
        "compress inspect routed --routes image.png",
    ),
)
@click.argument("model")
@data_options("Labelled training set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.")
@section_option(
    MODEL_AND_DATA, "--validation", metavar="DATA", help="Labelled set on which the best checkpoint is chosen."
)
@section_option(
    MODEL_AND_DATA,
    "--calibration",
    metavar="DATA",
    help="Labelled set on which --blocks auto is decided (default: the training set).",
)
@section_option(MODEL_AND_DATA, "--teacher", metavar="MODEL", help="Model whose predictions are learned too.")
@model_options()
@schema_options(Route, "Routing", skip=tuple(Training.model_fields))
@schema_options(Training, "Training")
@output_options()
@section_option(
    "Result", "--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER", help="Write TensorBoard events."
)
@json_option()
@schema_options(Runtime, COMPUTING, skip=("batch_size",))
@message_options
def route(
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
    """Let routers in MODEL choose which tokens pass some of its blocks; train it for that.

    MODEL is an artifact's folder, single, pruned or fused, or a family's model. The tokens that do not pass are not
    computed. A call that was interrupted goes on when it is repeated.
    """
    refuse_together("steps", "epochs")
    options = read_options(Route, values)
    runtime = read_options(Runtime, {name: values[name] for name in ("device", "dtype")})

    from compress.artifact.folder import check_target
    from compress.routing.route import route as route_model

    check_target(out, overwrite=overwrite, inputs=(model,))
    result = route_model(
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
    emit(result.table(), {"schema": "compress/route", "schema_version": 1, **result.to_plain()}, json_target)
