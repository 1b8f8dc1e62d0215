"""Relative paths in a recipe start at the recipe's own folder, wherever the command is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from compress.recipe.schema import ROLES, DataSources, Recipe, RecipeModel, StageEntry
from compress.recipe.stages.base import Stage
from compress.recipe.yaml_source import KeyPath
from compress.references import WEIGHT_SUFFIXES, absolute
from compress.registry import Registry

PATH_STARTS = ("./", "../", "~")


def with_absolute_paths(recipe: Recipe, base_of: Callable[[KeyPath], Path], stages: Registry[type[Stage]]) -> Recipe:
    """The recipe with every path absolute.

    Args:
        recipe: as written.
        base_of: folder that the path at a key such as ``("data", "train")`` is relative to: the recipe's folder, or
            the working directory for a value that the command line gave.
        stages: the stages that exist.
    """
    return recipe.model_copy(
        update={
            "model": _absolute_model(recipe.model, base_of),
            "data": _absolute_data(recipe.data, base_of),
            "stages": tuple(
                _absolute_stage(entry, base_of(("stages", number, entry.stage)), stages)
                for number, entry in enumerate(recipe.stages)
            ),
        }
    )


def _absolute_stage(entry: StageEntry, base: Path, stages: Registry[type[Stage]]) -> StageEntry:
    options = stages[entry.stage]().with_absolute_paths(entry.options, lambda reference: absolute(reference, base))
    return entry.model_copy(update={"options": options})


def _absolute_model(model: RecipeModel, base_of: Callable[[KeyPath], Path]) -> RecipeModel:
    update: dict[str, str] = {}
    if model.adapter is None or model.name.startswith(PATH_STARTS):
        update["name"] = absolute(model.name, base_of(("model", "name")))
    if model.weights is not None:
        base = base_of(("model", "weights"))
        is_path = model.weights.startswith(PATH_STARTS) or model.weights.endswith(WEIGHT_SUFFIXES)
        if is_path or os.path.lexists(base / model.weights):
            update["weights"] = absolute(model.weights, base)
    return model.model_copy(update=update)


def _absolute_data(data: DataSources, base_of: Callable[[KeyPath], Path]) -> DataSources:
    root = None if data.root is None else Path(absolute(data.root, base_of(("data", "root"))))
    update: dict[str, object] = {} if root is None else {"root": str(root)}

    def resolve(reference: str, key: KeyPath) -> str:
        return absolute(reference, root or base_of(key))

    for name in ROLES:
        reference = getattr(data, name)
        if reference is not None:
            update[name] = resolve(reference, ("data", name))
    update["ood"] = {name: resolve(reference, ("data", "ood", name)) for name, reference in data.ood.items()}
    return data.model_copy(update=update)
