"""``compress predict``."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.result_file import STDOUT
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import (
    COMPUTING,
    MODEL_AND_DATA,
    RESULT,
    model_details,
    model_options,
    open_given_model,
)
from compress.columns import columns
from compress.errors import DataError
from compress.runtime import Runtime

if TYPE_CHECKING:
    from compress.prediction.predict import PredictResult

logger = logging.getLogger(__name__)


@click.command(
    "predict",
    cls=SectionedCommand,
    examples=(
        "compress predict calibrated photo.png scans/",
        'compress predict sentiment "a fine film" reviews.csv --text-column text --json',
        "compress predict sentiment - < reviews.txt",
    ),
)
@click.argument("model", metavar="ARTIFACT")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@section_option(MODEL_AND_DATA, "--text-column", metavar="NAME", help="Column of a table that holds the text.")
@model_options()
@section_option(
    COMPUTING,
    "--budget",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="X",
    help="Share of the heads that every input gets, in a model with budgets.",
)
@section_option(
    COMPUTING,
    "--budget-cap",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="X",
    help="Largest share of the heads that an input gets, in a model with budgets.",
)
@section_option(RESULT, "--json", "as_json", is_flag=True, help="Write JSON to stdout instead of a table.")
@schema_options(Runtime, COMPUTING)
@message_options
def predict(model: str, inputs: tuple[str, ...], text_column: str | None, as_json: bool, **values: Any) -> None:
    """Classify INPUTs with ARTIFACT, with probability, entropy, mutual information and an abstain flag.

    For a model of images, an INPUT is an image file, a folder, or - for the names of image files on standard input.
    For a model of texts it is a table, a .txt file of one text a line, - for the texts on standard input, or the text
    itself. All INPUTs are read before the first is classified: one line for each that cannot be, and then none is
    answered. The abstain flag needs a threshold, which compress calibrate stores in the artifact.
    """
    runtime = read_options(Runtime, values)

    from compress.prediction.inputs import BadInputsError
    from compress.prediction.predict import predict as predict_inputs

    opened = open_given_model(model, model_details(values))
    try:
        result = predict_inputs(
            opened,
            inputs,
            runtime=runtime,
            text_column=text_column,
            stdin=sys.stdin,
            budget=values["budget"],
            budget_cap=values["budget_cap"],
        )
    except BadInputsError as error:
        if len(error.problems) == 1:
            raise
        for problem in error.problems:
            logger.error("%s", problem)
        raise DataError(f"{len(error.problems)} inputs cannot be used, so none was classified") from None
    plain = result.model_dump(mode="json", by_alias=True)
    emit(_table(result), plain, STDOUT if as_json else None)


def _table(result: PredictResult) -> str:
    rows = [("input", "label", "probability", "entropy", "mutual information", "abstain")]
    for found in result.predictions:
        shared = "—" if found.mutual_information is None else f"{found.mutual_information:.3f}"
        abstain = "—" if found.abstain is None else "yes" if found.abstain else "no"
        name = " ".join(found.input.split())
        name = name if len(name) <= 60 else f"{name[:59]}…"
        rows.append((name, found.label, f"{found.probability:.3f}", f"{found.entropy:.3f}", shared, abstain))
    return "\n".join(columns(rows, right=(2, 3, 4)))
