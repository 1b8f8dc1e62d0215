"""``compress eval``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compress.cli.console import message_options
from compress.cli.eval_models import named_models, opened_models
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit, raise_for_gates
from compress.cli.result_file import checked_result_file, write_result
from compress.cli.schema_options import read_options, schema_options
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
)
from compress.data.corruptions.registry import possible_corruptions
from compress.errors import UsageError
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
from compress.runtime import Runtime

if TYPE_CHECKING:
    from compress.evaluation.result import EvaluationResult


@click.command(
    "eval",
    cls=SectionedCommand,
    examples=(
        "compress eval builtin:digits-vit members=pruned fused --data builtin:digits#test --ood builtin:photos",
        "compress eval fused --data ./test --ood svhn=./svhn --shift all --json result.json --report report",
        'compress eval fused single=model --data ./test --fail-if "cls/accuracy < single - 0.01" --junit gates.xml',
        "compress eval fused deep_ensemble:a,b,c mc_dropout:model --data ./test --predictions kept",
        "compress eval --from kept both=deep_ensemble:fused,model",
    ),
)
@click.argument("models", nargs=-1, metavar="MODEL...")
@data_options("Labelled test set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.", required=False)
@section_option(
    MODEL_AND_DATA,
    "--ood",
    multiple=True,
    metavar="[NAME=]DATA",
    help="Foreign data that a model should notice; repeatable.",
)
@section_option(
    MODEL_AND_DATA, "--calibration", metavar="DATA", help="Labelled data on which the baseline temperature is fitted."
)
@section_option(
    MODEL_AND_DATA,
    "--from",
    "stored",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Evaluate the predictions that --predictions kept, without any model; MODEL is then a name among them.",
)
@model_options()
@schema_options(Evaluate, "Evaluating")
@json_option()
@section_option(
    RESULT,
    "--report",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a page with pictures to DIR/index.html, and the pictures and data beside it.",
)
@section_option(
    RESULT,
    "--predictions",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the logits of every member on every set.",
)
@section_option(RESULT, "--overwrite", is_flag=True, help="Replace predictions that are there.")
@section_option(
    RESULT,
    "--junit",
    type=click.Path(path_type=Path),
    callback=checked_result_file,
    metavar="FILE",
    help="Write the gates as JUnit XML, a test case per gate and model.",
)
@schema_options(Runtime, COMPUTING)
@message_options
def evaluate(models: tuple[str, ...], json_target: str | None, junit: Path | None, **values: Any) -> None:
    """Measure accuracy, calibration, detection of foreign inputs, diversity and cost of MODELs side by side.

    A MODEL is an artifact's folder, the folder of pruned members (evaluated as an ensemble), or a reference such as
    timm:NAME; NAME=MODEL gives it a name in the table. The first one is what the others are compared with.

    A MODEL can also be a baseline, which gates pass over: deep_ensemble:MODEL,MODEL,... (probabilities averaged),
    mc_dropout:MODEL (its dropout active in several passes), temperature:MODEL (scaled on the data of --calibration),
    pruned:FOLDER (the first of pruned members), single:MODEL.
    """
    options = read_options(Evaluate, values)
    result = _of_models(models, options, values) if values["stored"] is None else _of_stored(models, options, values)
    if junit is not None:
        from compress.evaluation.junit import junit_xml

        write_result(junit, junit_xml(result))
    table = result.table()
    if values["report"] is not None:
        from compress.evaluation.report.folder import PAGE

        table = f"{table}\n\nreport: {values['report'] / PAGE}"
    if options.fail_if and not result.failed_gates:
        table = f"{table}\n\ngates: all {len(result.passed_gates)} passed"
    emit(table, json.loads(result.to_json()), json_target)
    raise_for_gates([gate.message for gate in result.failed_gates])


def _of_models(models: tuple[str, ...], options: Evaluate, values: dict[str, Any]) -> EvaluationResult:
    """Run the models."""
    runtime = read_options(Runtime, values)
    if not models:
        raise UsageError("no model is named", where="MODEL", fix="name one or more, or pass --from DIR")
    if values["data"] is None:
        raise UsageError("a labelled test set is needed", where="--data", fix="pass --data DATA")
    named, foreign = named_models(models), named_references(values["ood"], "--ood")
    known = catalogue(foreign, possible_corruptions(options.shift))
    parse_gates(options.fail_if, metrics=known, models=named)

    from compress.evaluation.evaluate import evaluate as evaluate_models

    calibration = values["calibration"]
    return evaluate_models(
        opened_models(named, model_details(values)),
        data=open_given_data(values["data"], values),
        ood=foreign,
        options=options,
        runtime=runtime,
        calibration=None if calibration is None else open_given_data(calibration, values),
        report=values["report"],
        predictions=values["predictions"],
        overwrite=values["overwrite"],
    )


def _of_stored(models: tuple[str, ...], options: Evaluate, values: dict[str, Any]) -> EvaluationResult:
    """Read the predictions of an earlier call."""
    meaningless = ["ood", "calibration", "predictions", "shift", *model_details(values)]
    given = [name for name in meaningless if values.get(name)]
    if given:
        raise UsageError("needs a model, not stored predictions", where=f"--{given[0]}", fix="leave it out with --from")

    from compress.evaluation.stored.evaluate import evaluate_stored

    return evaluate_stored(
        values["stored"],
        named_models(models),
        data=None if values["data"] is None else open_given_data(values["data"], values),
        options=options,
        report=values["report"],
    )
