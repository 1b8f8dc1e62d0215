"""What would stop a run halfway, found before its first stage: data that do not fit; in a plan also target and disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from compress.artifact.manifest import read_manifest
from compress.artifact.store import read_config
from compress.data.base import Dataset, require_kind
from compress.data.labels import align_labels
from compress.errors import ArtifactError, CompressError
from compress.opening import artifact_folder
from compress.recipe.schema import Recipe, RecipeModel
from compress.recipe.stages.base import FOREIGN_ROLE, Stage, open_recipe_data
from compress.registry import Registry
from compress.transformer.config import ModelConfig

SLACK = 1.1
"""What the plan does not count: manifests, cards, scores, predictions."""


def artifact_config(model: RecipeModel) -> ModelConfig | None:
    """The configuration of a recipe's model that is an artifact; None for a family's, known only when it is opened."""
    folder = artifact_folder(model.reference)
    if folder is None:
        return None
    manifest = read_manifest(folder)
    return read_config(folder, manifest.stage) if manifest.kind == "model" else None


def check_data(recipe: Recipe, config: ModelConfig, stages: Registry[type[Stage[Any]]]) -> None:
    """Open every data set that a stage reads; it must be of the model's kind and labelled with its classes.

    Args:
        recipe: the recipe.
        config: of the recipe's model, whose classes all stages keep.
        stages: the stages that exist.

    Raises:
        CompressError: names the stage, the data and, for a label, the row.
    """
    opened: dict[tuple[str, bool], Dataset] = {}
    for folder, entry in zip(recipe.folder_names(), recipe.stages, strict=True):
        stage = stages[entry.stage]()
        if stage.takes_classes_from_data(entry.options):
            return  # What follows has other classes than the recipe's model.
        unlabelled = stage.unlabelled_roles(entry.options)
        for role, reference in stage.data(recipe.data, entry.options).items():
            labelled = not role.startswith(FOREIGN_ROLE) and role not in unlabelled
            try:
                if (reference, labelled) not in opened:
                    opened[reference, labelled] = open_recipe_data(recipe.data, reference, labelled=labelled)
                    _check_set(opened[reference, labelled], config, labelled=labelled)
            except CompressError as error:
                error.where = f"stage {folder}, {error.where}" if error.where else f"stage {folder}"
                raise


def _check_set(dataset: Dataset, config: ModelConfig, *, labelled: bool) -> None:
    require_kind(dataset, config.preprocessing.kind)
    if labelled:
        align_labels(dataset, config.labels)


def check_target_disk(out: Path, needed: int) -> None:
    """Raise ``ArtifactError`` when ``out`` cannot be written, or when its disk has no room for ``needed`` bytes."""
    there = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    if not there.is_dir():
        raise ArtifactError("is a file", where=str(there), fix="choose a folder with -o")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ArtifactError("cannot be written", where=str(there), fix="choose a folder that you may write to")
    free = shutil.disk_usage(there).free
    if needed * SLACK > free:
        raise ArtifactError(
            f"the run needs about {needed * SLACK / 1e6:,.0f} MB and the disk has {free / 1e6:,.0f} MB left",
            where=str(there),
            fix="free some space or write to another disk",
        )
