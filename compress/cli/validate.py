"""``compress validate``."""

from __future__ import annotations

import json

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand, section_option
from compress.cli.output import emit
from compress.cli.shared_options import RESULT, json_option, recipe_options
from compress.recipe.read import read_recipe
from compress.recipe.shipped import find_recipe


def _print_schema(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from compress.recipe.json_schema import recipe_json_schema

        click.echo(json.dumps(recipe_json_schema(), indent=2, ensure_ascii=False))
        context.exit()


@click.command(
    "validate",
    cls=SectionedCommand,
    examples=(
        "compress validate recipe.yaml",
        "compress validate digits --set prune.keep=4 --json -",
        "compress validate --json-schema",
    ),
)
@recipe_options()
@json_option()
@section_option(
    RESULT,
    "--json-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of recipes, for editors, and stop.",
)
@message_options
def validate(recipe: str, assignments: tuple[str, ...], json_target: str | None) -> None:
    """Check RECIPE as far as that needs no model: keys, values, the order of the stages, gates, and that files exist.

    Prints the recipe with every default and every change written out.
    """
    from compress.recipe.chain import check_chain, check_files

    path = find_recipe(recipe)
    parsed = read_recipe(path, assignments)
    check_chain(parsed)
    check_files(parsed)
    steps = " → ".join(parsed.folder_names())
    emit(f"# {path}: valid; {steps}\n{parsed.to_yaml()}", parsed.to_plain(), json_target)
