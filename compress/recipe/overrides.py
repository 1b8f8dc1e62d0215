"""``--set stage.key=value``: change single values of a recipe from the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compress.errors import RecipeError
from compress.recipe.hints import suggest
from compress.recipe.schema import SECTIONS, Recipe, reference_as_mapping
from compress.recipe.yaml_source import KeyPath, Source, parse_yaml

OPTION = "--set"
_TOP_LEVEL_VALUES = ("model", "seed")


def apply_overrides(source: Source, assignments: Sequence[str]) -> frozenset[KeyPath]:
    """Write ``stage.key=value`` assignments into a recipe's plain values, in place.

    ``stage`` is the name of a stage of the recipe, or ``model``, ``data``, ``runtime``; ``seed=1`` and
    ``model=timm:NAME`` have no second part. The value is read as YAML.

    Returns:
        The paths of the values that were set.

    Raises:
        RecipeError: an assignment without ``=``, or a first part that names nothing in the recipe.
    """
    written: set[KeyPath] = set()
    for assignment in assignments:
        place = f"{OPTION} {assignment}"
        keys, value = _parse(assignment, place)
        path = _locate(source.value, keys, place)
        _write(source.value, path, value, place)
        source.places = {known: at for known, at in source.places.items() if known[: len(path)] != path}
        source.places[path] = place
        written.add(path)
    return frozenset(written)


def base_folder(written: frozenset[KeyPath], recipe_folder: Path) -> Callable[[KeyPath], Path]:
    """The ``base_of`` of ``with_absolute_paths``: overridden values are relative to the working directory."""

    def base_of(key: KeyPath) -> Path:
        overridden = any(key[: len(path)] == path for path in written)
        return Path.cwd() if overridden else recipe_folder

    return base_of


def _parse(assignment: str, place: str) -> tuple[list[str], Any]:
    name, equals, text = assignment.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError("there is no 'key=value'", where=place, fix="write for example --set prune.keep=6")
    return keys, parse_yaml(text, name=place, numbered=False).value


def _locate(recipe: dict[str, Any], keys: list[str], place: str) -> KeyPath:
    """The path in the plain values that the dotted keys mean."""
    first = keys[0]
    if first in Recipe.model_fields and first != "stages":
        if len(keys) == 1 and first not in _TOP_LEVEL_VALUES:
            raise RecipeError(f"{first!r} is a section", where=place, fix=f"write {first}.KEY=VALUE")
        if len(keys) > 1 and first not in SECTIONS:
            raise RecipeError(f"{first!r} is a value, not a section", where=place, fix=f"write {first}=VALUE")
        return tuple(keys)
    matches = [path for path, name in _stage_names(recipe) if name == first]
    if not matches:
        known = [name for _, name in _stage_names(recipe)]
        sections = [name for name in Recipe.model_fields if name != "stages"]
        raise RecipeError(
            f"the recipe has no stage or section {first!r}", where=place, fix=suggest(first, [*known, *sections])
        )
    if len(matches) > 1:
        raise RecipeError(
            f"the recipe has {len(matches)} stages {first!r}", where=place, fix="give each its own 'name:'"
        )
    if len(keys) == 1:
        raise RecipeError(f"{first!r} is a stage", where=place, fix=f"write {first}.KEY=VALUE")
    return (*matches[0], *keys[1:])


def _stage_names(recipe: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    """Path and name of every well-formed stage; the others are the schema's business."""
    found: list[tuple[KeyPath, str]] = []
    stages = recipe.get("stages")
    for index, item in enumerate(stages if isinstance(stages, list) else []):
        if isinstance(item, str):
            found.append((("stages", index, item), item))
        elif isinstance(item, dict) and len(item) == 1:
            stage, options = next(iter(item.items()))
            name = options.get("name", stage) if isinstance(options, dict) else stage
            found.append((("stages", index, stage), str(name)))
    return found


def _write(recipe: dict[str, Any], path: KeyPath, value: Any, place: str) -> None:
    """Put a value at a path; sections that are absent, or written in a short form, become mappings."""
    target: Any = recipe
    for depth, key in enumerate(path[:-1], start=1):
        below = target[key] if isinstance(key, int) else target.get(key)
        if below is None:
            below = {}
        elif path[:depth] == ("model",):
            below = reference_as_mapping(below)
        elif path[0] == "stages" and depth == 2 and isinstance(below, str):
            below = {below: {}}
        if not isinstance(below, dict) and path[:depth] != ("stages",):
            raise RecipeError(f"{key!r} is a value, not a section", where=place, fix="drop what follows it")
        target[key] = below
        target = below
    target[path[-1]] = value
