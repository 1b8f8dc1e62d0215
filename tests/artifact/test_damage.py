"""Damage anywhere in an artifact of any kind is found, and the message names the file and the stage to run again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tiny.whole_run import run, write_recipe
from torch import Tensor

import compress
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME, Manifest
from compress.artifact.store import load_model
from compress.errors import ArtifactError
from compress.evaluation.stored.read import read_predictions
from compress.pruning.scores import load_scores
from compress.transformer.model import Transformer
from compress.tuning.losses import ExtraLoss, StepOutputs
from compress.tuning.options import Tune
from compress.tuning.state import CheckpointStore
from compress.tuning.tune import tune

KINDS = {
    "model": ("02-fuse", "fuse"),
    "tuned model": ("03-tune", "tune"),
    "members": ("01-prune", "prune"),
    "figures": ("04-eval", "eval"),
    "predictions": ("04-eval/predictions", "eval"),
    "checkpoint": ("checkpoint", "tune"),
}
POSITIONS = 24


class _Stop(ExtraLoss):
    """A loss of nothing that interrupts the training at its second step."""

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        if step == 1:
            os.kill(os.getpid(), signal.SIGINT)

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        return {"nothing": outputs.member_logits.new_zeros(())}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an artifact of every kind."""
    folder = tmp_path_factory.mktemp("kinds")
    run(write_recipe(folder), folder / "out")
    options = Tune(steps=4, batch_size=8)
    with pytest.raises(KeyboardInterrupt):
        tune(folder / "out/02-fuse", folder / "x", data=str(folder / "images#train[:24]"), options=options,
             extra_losses=[_Stop()])  # fmt: skip
    (step,) = folder.glob(".x.tune-*/**/step-*")
    shutil.copytree(step, folder / "out" / "checkpoint")
    return folder / "out"


@pytest.fixture
def artifact(sound: Path, tmp_path: Path, kind: str) -> Path:
    return Path(shutil.copytree(sound / KINDS[kind][0], tmp_path / "artifact"))


def listed(folder: Path) -> Iterator[Path]:
    """Every file that the manifests of an artifact name, and the manifests."""
    manifest = verify_folder(folder)
    yield folder / MANIFEST_NAME
    for name in manifest.files:
        yield folder / name
    for member in manifest.members:
        yield from (path for path in listed(folder / member) if path.name != MANIFEST_NAME)


def check_refused(folder: Path, path: Path, stage: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        verify_folder(folder)
    assert caught.value.where == str(path)
    assert "again" in str(caught.value)
    assert str(caught.value).isprintable()
    if path != folder / MANIFEST_NAME:  # which names the stage
        assert f"run the stage {stage!r}" in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_anywhere_is_found(artifact: Path, kind: str) -> None:
    chance = random.Random(0)
    for path in list(listed(artifact)):
        content = path.read_bytes()
        for position in {0, len(content) - 1, *chance.choices(range(len(content)), k=POSITIONS)}:
            changed = bytearray(content)
            changed[position] ^= 1 << chance.randrange(8)
            path.write_bytes(changed)
            check_refused(artifact, path, KINDS[kind][1])
        path.write_bytes(content)
    verify_folder(artifact)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_anywhere_is_found(artifact: Path, kind: str) -> None:
    chance = random.Random(0)
    for path in list(listed(artifact)):
        content = path.read_bytes()
        for length in {0, len(content) // 2, *chance.choices(range(len(content)), k=POSITIONS)}:
            path.write_bytes(content[:length])
            if content.strip() != content[:length].strip():  # a manifest may lose its last line break
                check_refused(artifact, path, KINDS[kind][1])
        path.write_bytes(content)
    verify_folder(artifact)


@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_format_is_refused_as_such(artifact: Path, kind: str) -> None:
    manifest = json.loads((artifact / MANIFEST_NAME).read_text())
    (artifact / MANIFEST_NAME).write_text(json.dumps({**manifest, "format_version": 2, "new": "field"}))
    with pytest.raises(ArtifactError, match=r"newer version of compress \(format 2, .*; upgrade the package"):
        verify_folder(artifact)


@pytest.mark.parametrize("kind", ["figures", "predictions"])
def test_damaged_predictions_are_not_read(artifact: Path, kind: str) -> None:
    folder = artifact if kind == "predictions" else artifact / "predictions"
    flip(folder / "predictions.safetensors")
    with pytest.raises(ArtifactError, match=r"predictions\.safetensors: was changed .*'eval'"):
        read_predictions(artifact)


@pytest.mark.parametrize("kind", ["members"])
def test_damaged_scores_are_not_used(artifact: Path, kind: str) -> None:
    manifest, model = verify_folder(artifact), load_model(artifact / "member-0")
    parent = json.loads((artifact / "provenance.json").read_text())["parents"][0]
    heads = list(model.structure.original_heads)
    assert isinstance(manifest, Manifest)
    assert load_scores(artifact, model=parent, method="taylor", heads=heads).samples
    flip(artifact / "scores.safetensors")
    for place in (artifact, artifact / "scores.safetensors"):
        with pytest.raises(ArtifactError, match=r"scores\.safetensors: was changed .*'prune'"):
            load_scores(place, model=parent, method="taylor", heads=heads)


@pytest.mark.parametrize("kind", ["members"])
def test_damaged_members_are_neither_loaded_nor_fused(artifact: Path, kind: str, tmp_path: Path) -> None:
    flip(artifact / "member-1" / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"member-1/model\.safetensors: was changed .*'prune'"):
        compress.load(artifact / "member-1")
    with pytest.raises(ArtifactError, match=r"member-1/model\.safetensors: was changed .*'prune'"):
        compress.fuse(artifact, tmp_path / "fused")
    assert not (tmp_path / "fused").exists()


@pytest.mark.parametrize("kind", ["checkpoint"])
def test_a_damaged_checkpoint_is_passed_over(artifact: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    store = CheckpointStore(artifact.parent)
    step = artifact.rename(artifact.with_name("step-00000002"))
    found = store.newest()
    assert found is not None
    assert found[1].step == 2
    flip(step / "model.safetensors")
    assert store.newest() is None
    assert "is passed over" in caplog.text


def flip(path: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
