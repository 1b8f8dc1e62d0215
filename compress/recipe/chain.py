"""What can be said about a recipe's stages as a whole before anything is opened."""

from __future__ import annotations

from pathlib import Path

from compress.data.reference import parse_reference
from compress.errors import CompressError, RecipeError
from compress.recipe.schema import ROLES, Recipe
from compress.recipe.stages import STAGES
from compress.recipe.stages.base import KIND_NAMES, RECIPE_MODEL_LABEL, Kind, Stage
from compress.registry import Registry


def check_chain(recipe: Recipe, stages: Registry[type[Stage]] = STAGES) -> None:
    """Raise ``RecipeError`` when a stage cannot start from what the stages before it make, or lacks data."""
    kind: Kind = "model"
    label = RECIPE_MODEL_LABEL
    earlier: list[Kind] = []
    for folder, entry in zip(recipe.folder_names(), recipe.stages, strict=True):
        stage = stages[entry.stage]()
        if kind not in stage.accepts:
            wanted = " or ".join(KIND_NAMES[accepted] for accepted in stage.accepts)
            makers = [name for name in stages if stages[name].produces in stage.accepts and name != entry.stage]
            raise RecipeError(
                f"{entry.stage} starts from {wanted}, but the stages before it leave {KIND_NAMES[kind]}",
                where=f"stage {folder}",
                fix=f"put one of these before it: {', '.join(makers)}",
            )
        try:
            stage.data(recipe.data, entry.options)
            stage.check(recipe.data, entry.options, label, tuple(earlier))
        except CompressError as error:
            error.where = f"stage {folder}"
            raise
        made = stage.made_from(kind)
        if made is not None:
            kind, label = made, stage.artifact_label(entry)
            earlier.append(kind)


def check_files(recipe: Recipe) -> None:
    """Raise ``CompressError`` when data or weights that the recipe names by path do not exist."""
    data = recipe.data
    named = {name: getattr(data, name) for name in ROLES}
    references = {**named, **{f"ood.{name}": reference for name, reference in data.ood.items()}}
    for key, reference in references.items():
        if reference is None:
            continue
        try:
            parse_reference(reference)
        except CompressError as error:
            error.where = f"data.{key}: {error.where}"
            raise
    for key, place in (("name", recipe.model.name), ("weights", recipe.model.weights)):
        # The reader of recipes has made paths absolute; what is not absolute is a name or a tag.
        if place is not None and Path(place).is_absolute() and not Path(place).exists():
            raise RecipeError("there is no such file or folder", where=f"model.{key}: {place}", fix="check the path")
