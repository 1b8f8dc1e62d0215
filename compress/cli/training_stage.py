"""What ``compress budget`` and ``compress route`` share: they give a model a new part and train it on labelled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from compress.cli.console import message_options
from compress.cli.help_pages import section_option
from compress.cli.output import emit
from compress.cli.schema_options import read_options, refuse_together, schema_options
from compress.cli.shared_options import (
    COMPUTING,
    MODEL_AND_DATA,
    RESULT,
    data_options,
    json_option,
    model_details,
    model_options,
    open_given_data,
    open_given_model,
    output_options,
    stacked,
)
from compress.runtime import Runtime
from compress.tuning.options import Training

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Training)


class StageResult(Protocol):
    """What such a stage returns."""

    def table(self) -> str: ...
    def to_plain(self) -> dict[str, Any]: ...


def stage_options(*own: Callable[[F], F], validation: str, calibration: str) -> Callable[[F], F]:
    """MODEL, data, the stage's ``own`` options, and where the result goes; with the help of two of the data sets."""
    return stacked(
        click.argument("model"),
        data_options("Labelled training set: a folder, table, idx file, builtin:NAME or hf:ID, with #SPLIT."),
        section_option(MODEL_AND_DATA, "--validation", metavar="DATA", help=validation),
        section_option(MODEL_AND_DATA, "--calibration", metavar="DATA", help=calibration),
        section_option(MODEL_AND_DATA, "--teacher", metavar="MODEL", help="Model whose predictions are learned too."),
        model_options(),
        *own,
        output_options(),
        section_option(
            RESULT, "--tensorboard", type=click.Path(path_type=Path), metavar="FOLDER", help="Write TensorBoard events."
        ),
        json_option(),
        schema_options(Runtime, COMPUTING, skip=("batch_size",)),
        message_options,
    )


def stage_settings(schema: type[S], given: Mapping[str, Any]) -> tuple[S, Runtime]:
    """The stage's options and the runtime; argument errors end here, before torch is imported."""
    refuse_together("steps", "epochs")
    return read_options(schema, given), read_options(Runtime, {name: given[name] for name in ("device", "dtype")})


def run_stage(
    name: str, stage: Callable[..., StageResult], options: Training, runtime: Runtime, given: Mapping[str, Any]
) -> None:
    """Open what was ``given`` to ``stage_options``, call the library's function and print its result."""
    from compress.artifact.folder import check_target

    check_target(given["out"], overwrite=given["overwrite"], inputs=(given["model"],))
    sets = {role: given[role] for role in ("data", "validation", "calibration") if given[role] is not None}
    result = stage(
        open_given_model(given["model"], model_details(given)),
        given["out"],
        **{role: open_given_data(reference, given) for role, reference in sets.items()},
        teacher=given["teacher"],
        options=options,
        runtime=runtime,
        tensorboard=given["tensorboard"],
        overwrite=given["overwrite"],
    )
    plain = {"schema": f"compress/{name}", "schema_version": 1, **result.to_plain()}
    emit(result.table(), plain, given["json_target"])
