"""``compress calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.calibration.options import Calibrate
from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand
from compress.cli.output import emit
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import (
    COMPUTING,
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
    "calibrate",
    cls=SectionedCommand,
    examples=(
        "compress calibrate fused -o calibrated --data builtin:digits#calibration",
        "compress calibrate fused -o calibrated --data ./validation --target-coverage 0.9",
        "compress calibrate fused -o calibrated --data ./validation --target-risk 0.01 --score entropy",
    ),
)
@click.argument("model", metavar="ARTIFACT")
@data_options("Labelled set that the model was not trained on: a folder, table, idx file, builtin:NAME or hf:ID.")
@model_options()
@schema_options(Calibrate, "Calibrating")
@output_options()
@json_option()
@schema_options(Runtime, COMPUTING)
@message_options
def calibrate(model: str, data: str, out: Path, overwrite: bool, json_target: str | None, **values: Any) -> None:
    """Store a temperature in ARTIFACT, so that its probabilities mean what they say, and when it should abstain.

    Weights stay as they are. With --target-coverage or --target-risk the threshold for the abstain flag of compress
    predict is fitted too. ARTIFACT may also be a model such as timm:NAME.
    """
    options, runtime = read_options(Calibrate, values), read_options(Runtime, values)

    from compress.artifact.folder import check_target
    from compress.calibration.calibrate import calibrate as calibrate_model

    check_target(out, overwrite=overwrite, inputs=(model,))
    result = calibrate_model(
        open_given_model(model, model_details(values)),
        out,
        data=open_given_data(data, values),
        options=options,
        runtime=runtime,
        overwrite=overwrite,
    )
    plain = {"schema": "compress/calibrate", "schema_version": 1, **result.to_plain()}
    emit(result.table(), plain, json_target)
