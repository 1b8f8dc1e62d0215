"""``compress validate``."""

from __future__ import annotations

import click

from compress.cli.console import message_options
from compress.cli.help_pages import SectionedCommand
from compress.cli.output import emit
from compress.cli.shared_options import json_option, recipe_options
from compress.recipe.read import read_recipe
from compress.recipe.shipped import find_recipe


@click.command(
    "validate",
    cls=SectionedCommand,
    examples=("compress validate recipe.yaml", "compress validate digits --set prune.keep=4 --json -"),
)
@recipe_options()
@json_option()
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
