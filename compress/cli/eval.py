"""``compress eval``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit, raise_for_gates
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
    open_given_model,
)
from compress.errors import UsageError
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
from compress.recipe.schema import scheme_of
from compress.runtime import Runtime

if TYPE_CHECKING:
    from torch import nn


@click.command(
    "eval",
    cls=SectionedCommand,
    examples=(
        "compress eval builtin:digits-vit members=pruned fused --data builtin:digits#test --ood builtin:photos",
        "compress eval fused --data ./test --ood svhn=./svhn --json result.json --report report",
        'compress eval fused single=model --data ./test --fail-if "cls/accuracy < single - 0.01"',
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@data_options("Labelled test set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT.")
@section_option(
    MODEL_AND_DATA,
    "--ood",
    multiple=True,
    metavar="[NAME=]DATA",
    help="Foreign data that a model should notice; repeatable.",
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
@schema_options(Runtime, COMPUTING)
@message_options
def evaluate(
    models: tuple[str, ...],
    data: str,
    ood: tuple[str, ...],
    json_target: str | None,
    report: Path | None,
    **values: Any,
) -> None:
    """Measure accuracy, calibration, detection of foreign inputs, diversity and cost of MODELs side by side.

    A MODEL is an artifact's folder, the folder of pruned members (evaluated as an ensemble), or a reference such as
    timm:NAME; NAME=MODEL gives it a name in the table. The first one is what the others are compared with.
    """
    options, runtime = read_options(Evaluate, values), read_options(Runtime, values)
    named, foreign = named_references(models, "MODEL"), named_references(ood, "--ood")
    parse_gates(options.fail_if, metrics=catalogue(foreign), models=named)

    from compress.evaluation.evaluate import evaluate as evaluate_models

    result = evaluate_models(
        _opened(named, model_details(values)),
        data=open_given_data(data, values),
        ood=foreign,
        options=options,
        runtime=runtime,
        report=report,
    )
    emit(result.table(), json.loads(result.to_json()), json_target)
    raise_for_gates([gate.message for gate in result.failed_gates])


def _opened(named: Mapping[str, str], details: Mapping[str, Any]) -> dict[str, str | Path | nn.Module]:
    """The models by name. The options that say how to open a model are for those that are no artifacts."""
    foreign = [name for name, reference in named.items() if scheme_of(reference)]
    if "weights" in details and len(foreign) != 1:
        raise UsageError(
            f"{len(foreign)} of the models could take these weights",
            where="--weights",
            fix="give exactly one model of a family",
        )
    return {
        name: open_given_model(reference, details) if name in foreign else Path(reference)
        for name, reference in named.items()
    }
