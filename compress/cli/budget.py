"""``compress budget``."""

from __future__ import annotations

from typing import Any

import click

from compress.budgeting.options import Budget
from compress.cli.help_pages import SectionedCommand
from compress.cli.schema_options import schema_options
from compress.cli.training_stage import run_stage, stage_options, stage_settings


@click.command(
    "budget",
    cls=SectionedCommand,
    examples=(
        "compress budget model -o budgeted --data ./train --min 0.1 --max 0.5 --epochs 2",
        "compress budget fused -o budgeted --data ./train --train predictor --calibrate-to 0.25",
        "compress eval budgeted --data ./test --budget 0.5",
    ),
)
@stage_options(
    schema_options(Budget, "Budgets and training", skip=("evaluate_steps", "patience")),
    validation="Labelled set that is measured before and after.",
    calibration="Labelled set for --calibrate-to and for measuring budgets "
    "(default: --validation, else training data).",
)
def budget(**given: Any) -> None:
    """Let MODEL choose for every input how many attention heads run, and which; train it for that.

    MODEL is an artifact's folder, single, pruned or fused, or a family's model. The heads that are not chosen are not
    computed. A call that was interrupted goes on when it is repeated.
    """
    options, runtime = stage_settings(Budget, given)

    from compress.budgeting.budget import budget as budget_model

    run_stage("budget", budget_model, options, runtime, given)
