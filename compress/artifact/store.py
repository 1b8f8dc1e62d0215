"""Models as artifacts: a folder with weights, configuration, provenance, model card and manifest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from compress.artifact.card import model_card
from compress.artifact.durable import read_bytes, write_bytes
from compress.artifact.folder import new_folder, verify_folder
from compress.artifact.json_values import check_values
from compress.artifact.manifest import Manifest
from compress.artifact.provenance import Provenance
from compress.artifact.tensors import TensorEntry, TensorFile, read_tensors, tensor_entries, write_tensors
from compress.backbones.bounds import Bounds
from compress.backbones.registry import build_skeleton
from compress.errors import ArtifactError, CompressError, first_line
from compress.transformer.config import FORMAT_VERSION, ModelConfig
from compress.transformer.finite import check_weights
from compress.transformer.model import Transformer

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
PROVENANCE = "provenance.json"
CARD = "README.md"
OWN_FILES = (WEIGHTS, CONFIG, PROVENANCE, CARD)
MAX_CONFIG_BYTES = 4 * 2**20
MAX_FILE_BYTES = 512 * 2**20
"""Largest file beside the weights that is read into memory; vocabularies have a few megabytes."""


def json_bytes(text: str) -> bytes:
    """Indented JSON with sorted keys, the same bytes each time."""
    return (json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def save_model(
    model: Transformer,
    folder: Path,
    provenance: Provenance,
    *,
    overwrite: bool = False,
    further: Callable[[Path], None] | None = None,
) -> None:
    """Write ``model`` to ``folder``, which appears complete or not at all.

    Args:
        further: puts more, such as a folder of another format, into the one that grows.

    Raises:
        ArtifactError: the place cannot be written.
    """
    entries, ties = tensor_entries(model.state_dict())
    write_model(
        model.config,
        entries,
        folder,
        provenance,
        files=model.files,
        ties=ties,
        overwrite=overwrite,
        further=further,
    )


def write_model(
    config: ModelConfig,
    entries: Iterable[TensorEntry],
    folder: Path,
    provenance: Provenance,
    *,
    files: Mapping[str, bytes],
    ties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    check: Callable[[TensorFile], None] | None = None,
    further: Callable[[Path], None] | None = None,
) -> None:
    """Write a model whose tensors are produced one at a time; see ``save_model``.

    Args:
        check: called with the tensors as they were written, before the folder appears; when it raises, nothing does.
        further: called with the folder as it grows.
    """
    with new_folder(folder, kind="model", stage=provenance.stage, overwrite=overwrite) as partial:
        write_tensors(partial / WEIGHTS, entries, ties=ties)
        if check is not None:
            check(read_tensors(partial / WEIGHTS))
        write_bytes(partial / CONFIG, json_bytes(config.model_dump_json()))
        write_bytes(partial / PROVENANCE, json_bytes(provenance.model_dump_json()))
        write_bytes(partial / CARD, model_card(config, provenance).encode())
        for name, content in files.items():
            write_bytes(partial / name, content)
        if further is not None:
            further(partial)


def read_config(folder: Path, stage: str = "that wrote it") -> ModelConfig:
    """The configuration of an artifact.

    Raises:
        ArtifactError: it is damaged, or was written by a newer version of the format.
    """
    path = folder / CONFIG
    try:
        text = read_bytes(path, MAX_CONFIG_BYTES)
        check_values(text)
        content = json.loads(text)
        version = content.get("format_version") if isinstance(content, dict) else None
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise ArtifactError(
                f"has format version {version}, this program reads up to {FORMAT_VERSION}",
                where=str(path),
                fix="upgrade compress-transformers",
            )
        return ModelConfig.model_validate(content)
    except (ValueError, RecursionError, ValidationError) as error:
        detail = first_line(error.errors()[0]["msg"] if isinstance(error, ValidationError) else error)
        raise ArtifactError(
            f"is not a valid configuration ({detail})", where=str(path), fix=f"run the stage {stage!r} again"
        ) from None


def read_provenance(folder: Path) -> Provenance:
    """How an artifact was made; raises ``ArtifactError`` when the file is damaged."""
    path = folder / PROVENANCE
    try:
        text = read_bytes(path, MAX_CONFIG_BYTES)
        check_values(text)
        return Provenance.model_validate_json(text)
    except ValueError as error:
        raise ArtifactError(
            "is not a valid provenance", where=str(path), fix="run the stage that wrote it again"
        ) from error


def read_files(folder: Path, manifest: Manifest) -> dict[str, bytes]:
    """The further files of a model (a tokenizer): whatever the manifest lists beside the artifact's own files."""
    beside = [name for name in manifest.files if "/" not in name]  # a folder within is of another format
    names = [name for name in beside if name not in OWN_FILES and not name.startswith("model-")]
    further = [name for name in names if not name.endswith((".safetensors", ".index.json"))]
    return {name: read_bytes(folder / name, MAX_FILE_BYTES) for name in further}


def bounds_of(tensors: TensorFile) -> Bounds:
    """What a model with these weights may need."""
    shapes = {name: tensors.shape(name) for name in tensors}
    stored = sum(math.prod(shape) * tensors.dtype(name).itemsize for name, shape in shapes.items())
    return Bounds.of_weights(list(shapes.values()), stored)


def stored_skeleton(folder: Path, manifest: Manifest) -> tuple[Transformer, TensorFile]:
    """A verified artifact's model without its weights, and the weights, of which the headers are read.

    Raises:
        ArtifactError: configuration or headers are damaged, or ask for far more than the weights could fill.
    """
    config, tensors = read_config(folder, manifest.stage), read_tensors(folder / WEIGHTS)
    files = read_files(folder, manifest)
    try:
        skeleton = build_skeleton(config, files, bounds=bounds_of(tensors))
    except CompressError as error:
        fix = f"run the stage {manifest.stage!r} that wrote it again"
        raise ArtifactError(error.what, where=str(folder / CONFIG), fix=fix) from error
    return skeleton, tensors


def load_model(
    folder: str | Path, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> Transformer:
    """Load an artifact, in evaluation mode; no network, no pickle, no code from the folder.

    Args:
        folder: what a stage wrote.
        device: where the model goes.
        dtype: number format; None keeps that of the file.

    Raises:
        ArtifactError: the folder is incomplete, damaged, too new, or not one model; names file and stage to run again.
        ModelError: a weight holds NaN or infinity.
    """
    folder = Path(folder)
    manifest = verify_folder(folder, expect_kind="model")
    model, tensors = stored_skeleton(folder, manifest)
    load_tensors(model, tensors, folder / WEIGHTS, manifest.stage)
    check_weights(model, str(folder / WEIGHTS))
    return model.to(device=device, dtype=dtype).eval()


def load_tensors(model: Transformer, tensors: TensorFile, where: Path, stage: str) -> None:
    """Put the tensors of a file in the place of a skeleton's, all of them, without a copy.

    Raises:
        ArtifactError: a tensor is missing, unexpected or has another shape.
    """
    expected: dict[str, Tensor] = model.state_dict()
    wrong = sorted(expected.keys() ^ set(tensors)) or [
        name for name, tensor in expected.items() if tensors.shape(name) != tuple(tensor.shape)
    ]
    if wrong:
        raise ArtifactError(
            f"the weights do not fit the configuration ({', '.join(wrong[:4])})",
            where=str(where),
            fix=f"run the stage {stage!r} that wrote it again",
        )
    model.load_state_dict(tensors.all(), strict=True, assign=True)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for alias, name in tensors.ties.items():  # one parameter again, so that training moves it once
        if alias in parameters:
            module, _, leaf = alias.rpartition(".")
            setattr(model.get_submodule(module), leaf, parameters[name])
