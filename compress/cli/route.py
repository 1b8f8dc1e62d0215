"""``compress route``."""

from __future__ import annotations

from typing import Any

import click

from compress.cli.help_pages import SectionedCommand
from compress.cli.schema_options import schema_options
from compress.cli.training_stage import run_stage, stage_options, stage_settings
from compress.routing.options import Route
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
@stage_options(
    schema_options(Route, "Routing", skip=tuple(Training.model_fields)),
    schema_options(Training, "Training"),
    validation="Labelled set on which the best checkpoint is chosen.",
    calibration="Labelled set on which --blocks auto is decided (default: the training set).",
)
def route(**given: Any) -> None:
    """Let routers in MODEL choose which tokens pass some of its blocks; train it for that.

    MODEL is an artifact's folder, single, pruned or fused, or a family's model. The tokens that do not pass are not
    computed. A call that was interrupted goes on when it is repeated.
    """
    options, runtime = stage_settings(Route, given)

    from compress.routing.route import route as route_model

    run_stage("route", route_model, options, runtime, given)
