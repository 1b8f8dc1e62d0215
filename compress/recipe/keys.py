"""When is a finished stage still right? Its key covers everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import compress
from compress.artifact.durable import read_failure
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.recipe.schema import Recipe, RecipeModel, StageEntry, reference_as_mapping

BUILTIN_MODELS = Path(compress.__file__).parent / "models"
_CHUNK = 1 << 20


def stage_key(recipe: Recipe, entry: StageEntry, parents: Sequence[str], fingerprints: Mapping[str, str]) -> str:
    """The key of a stage: sha256, lower-case hexadecimal.

    Args:
        recipe: the recipe; its seed and number format count, its device and batch size do not.
        entry: the stage with all its options; its name does not count.
        parents: identities of the models that the stage starts from or compares with, digests of earlier artifacts.
        fingerprints: fingerprints of the data that the stage reads, by role.
    """
    content = {
        "stage": entry.stage,
        "options": entry.options.model_dump(mode="json"),
        "parents": list(parents),
        "data": dict(fingerprints),
        "dtype": recipe.runtime.dtype,
        "seed": recipe.seed,
        "version": compress.__version__,
    }
    return _sha256_of_json(content)


def model_identity(model: RecipeModel) -> str:
    """A hash of what the recipe's model is: an artifact's digest, the content of local files, or the hub's name.

    A hub model counts by its name: the hub is not asked whether it has changed.
    """
    folder = BUILTIN_MODELS / model.name if model.adapter == "builtin" else Path(model.name)
    if model.adapter in (None, "builtin") and (folder / MANIFEST_NAME).exists():
        return verify_folder(folder).digest
    files = {str(place): _content(place) for place in (model.weights, model.name) if place and Path(place).exists()}
    written = model.model_dump(mode="json")
    # The place of a file does not count, its content does.
    for key in ("weights", "name"):
        written[key] = files.get(str(written[key]), written[key])
    return _sha256_of_json(written)


def reference_identity(reference: str) -> str:
    """``model_identity`` of a reference; members of a set count with the set."""
    return model_identity(RecipeModel.model_validate(reference_as_mapping(reference)))


def _content(path: Path | str) -> str:
    path = Path(path)
    if path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        return _sha256_of_json([[file.relative_to(path).as_posix(), _content(file)] for file in inside])
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise read_failure(error, path) from error
    return digest.hexdigest()


def _sha256_of_json(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
