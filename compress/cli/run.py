"""``compress run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from compress.cli.console import Console, message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit, raise_for_gates
from compress.cli.schema_options import read_options, schema_options
from compress.cli.shared_options import COMPUTING, RESULT, json_option, recipe_options
from compress.recipe.read import read_recipe
from compress.recipe.shipped import find_recipe
from compress.runtime import Runtime

RUNS = Path("runs")


@click.command(
    "run",
    cls=SectionedCommand,
    examples=(
        "compress run digits",
        "compress run digits --set prune.keep=4 --set prune.branch_layer=3 -o runs/narrow",
        "compress run recipe.yaml --dry-run",
        "compress run recipe.yaml --set data.root=/data/reviews --device cuda --dtype bfloat16",
    ),
)
@recipe_options()
@section_option(
    RESULT,
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder of the run (default: runs/NAME).",
)
@json_option()
@section_option("Running", "--dry-run", is_flag=True, help="Print the plan: heads, parameters, FLOPs, disk, memory.")
@section_option("Running", "--fresh", is_flag=True, help="Compute every stage again.")
@schema_options(Runtime, COMPUTING, defaults=False)
@message_options
@click.pass_obj
def run(
    console: Console,
    recipe: str,
    assignments: tuple[str, ...],
    out: Path | None,
    json_target: str | None,
    dry_run: bool,
    fresh: bool,
    **values: Any,
) -> None:
    """Run RECIPE: a YAML file, or a recipe that comes with the package (digits).

    Each stage writes an artifact into its own folder. Stages that are complete and still right are skipped, so that an
    interrupted run continues where it stopped, and an edited recipe redoes only what changed.
    """
    path = find_recipe(recipe)
    parsed = read_recipe(path, assignments)
    parsed = parsed.model_copy(update={"runtime": read_options(Runtime, values, base=parsed.runtime)})
    folder = out or RUNS / path.stem
    if dry_run:
        from compress.recipe.plan import plan_recipe

        plan = plan_recipe(parsed, folder)
        emit(plan.table(), plan.to_plain(), json_target)
        return

    from compress.recipe.run import StageOutcome, describe_complete, run_recipe

    complete: list[StageOutcome] = []
    console.closing_line = lambda: describe_complete(complete)
    result = run_recipe(parsed, folder, fresh=fresh, finished=complete.append)
    emit(result.table(), result.to_plain(), json_target)
    console.closing_line = lambda: f"all stages are complete in {folder}"
    raise_for_gates(result.failed_gates())
