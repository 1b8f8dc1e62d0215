"""Every kind of file that may come from a stranger, opened as the program opens it.

``OPENERS[kind](content, sound, folder)`` puts ``content`` in the place of the file of that kind within a copy of a
sound artifact, lists it in the manifest with its true size and hash, as a stranger would, and opens the artifact; or
in the place of the configuration in a sound folder of a model family.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from hostile.foreign import open_folder, with_config
from tiny.scratch_vit import tiny_source

from compress.artifact.folder import new_folder, verify_folder
from compress.artifact.manifest import MANIFEST_NAME, FileRecord, Kind, Manifest, read_manifest
from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, read_provenance, save_model
from compress.artifact.tensors import read_tensors, tensor_entries, write_tensors
from compress.data.folder import read_image
from compress.data.idx import read_idx
from compress.evaluation.stored.evaluate import evaluate_stored
from compress.opening import open_model
from compress.recipe.read import read_recipe

MODEL, PREDICTIONS, FOREIGN = "model", "predictions", "foreign"


def make_sound(folder: Path) -> Path:
    """A sound model and sound predictions of a tiny model, as ``folder/model`` and ``folder/predictions``."""
    save_model(open_model(tiny_source()), folder / MODEL, Provenance(stage="prune"))
    tensors = {
        "test/logits/a": torch.arange(40.0).reshape(1, 4, 10),
        "test/labels": torch.tensor([0, 1, 2, 3]),
        "test/ids": torch.frombuffer(bytearray(b"0123"), dtype=torch.uint8),
        "test/id_ends": torch.tensor([1, 2, 3, 4]),
    }
    with new_folder(folder / PREDICTIONS, kind="predictions", stage="eval") as partial:
        entries, ties = tensor_entries(tensors)
        write_tensors(partial / "predictions.safetensors", entries, ties=ties)
        (partial / "predictions.json").write_text(json.dumps(DESCRIPTION))
    return folder


DESCRIPTION = {
    "schema": "compress/predictions",
    "schema_version": 1,
    "labels": [str(digit) for digit in range(10)],
    "dtype": "float32",
    "sets": {"test": {"reference": "d", "fingerprint": "0" * 64, "samples": 4, "classes": 10}},
    "models": [
        {
            "name": "a",
            "kind": "single",
            "digest": None,
            "members": 1,
            "kept_heads": [[[0, 1]]],
            "original_heads": [2],
            "cost": {"params": 1, "bytes": 4, "flops": 2},
        }
    ],
}


def replaced(sound: Path, folder: Path, name: str, content: bytes) -> Path:
    """A copy of an artifact with other content in one file, which its new manifest lists as it is."""
    target = folder / sound.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sound, target, copy_function=os.link)
    (target / name).unlink(missing_ok=True)
    (target / name).write_bytes(content)
    reseal(target, read_manifest(sound).kind)
    return target


def reseal(folder: Path, kind: Kind) -> None:
    """Write a manifest that fits what lies in a folder."""
    (folder / MANIFEST_NAME).unlink()
    files = {
        path.name: FileRecord(sha256=hashlib.sha256(path.read_bytes()).hexdigest(), bytes=path.stat().st_size)
        for path in folder.iterdir()
    }
    (folder / MANIFEST_NAME).write_bytes(Manifest(kind=kind, stage="prune", files=files).to_json())


def _manifest(content: bytes, sound: Path, folder: Path) -> None:
    target = folder / MODEL
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sound / MODEL, target, copy_function=os.link)
    (target / MANIFEST_NAME).unlink()
    (target / MANIFEST_NAME).write_bytes(content)
    verify_folder(target)


def _config(content: bytes, sound: Path, folder: Path) -> None:
    load_model(replaced(sound / MODEL, folder, "config.json", content))


def _provenance(content: bytes, sound: Path, folder: Path) -> None:
    read_provenance(replaced(sound / MODEL, folder, "provenance.json", content))


def _weights(content: bytes, sound: Path, folder: Path) -> None:
    target = replaced(sound / MODEL, folder, "model.safetensors", content)
    tensors = read_tensors(target / "model.safetensors")
    for name in tensors:
        assert tensors[name].shape == tensors.shape(name)
    load_model(target)


def _index(content: bytes, sound: Path, folder: Path) -> None:
    (folder / "x.safetensors.index.json").write_bytes(content)
    read_tensors(folder / "x.safetensors.index.json")


def _predictions(content: bytes, sound: Path, folder: Path) -> None:
    evaluate_stored(replaced(sound / PREDICTIONS, folder, "predictions.json", content))


def _recipe(content: bytes, sound: Path, folder: Path) -> None:
    (folder / "recipe.yaml").write_bytes(content)
    read_recipe(folder / "recipe.yaml")


def _image(content: bytes, sound: Path, folder: Path) -> None:
    (folder / "image.png").write_bytes(content)
    read_image(folder / "image.png")


def _idx(content: bytes, sound: Path, folder: Path) -> None:
    (folder / "images.gz").write_bytes(content)
    read_idx(folder / "images.gz", dimensions=3)


def _folder_of(family: str) -> Callable[[bytes, Path, Path], None]:
    def opened(content: bytes, sound: Path, folder: Path) -> None:
        open_folder(with_config(sound / FOREIGN, family, content, folder / FOREIGN))

    return opened


OPENERS: dict[str, Callable[[bytes, Path, Path], None]] = {
    "manifest": _manifest,
    "config": _config,
    "provenance": _provenance,
    "weights": _weights,
    "index": _index,
    "predictions": _predictions,
    "recipe": _recipe,
    "image": _image,
    "idx": _idx,
    "timm_folder": _folder_of("timm"),
    "hf_folder": _folder_of("hf"),
    "clip_folder": _folder_of("open_clip"),
}
