"""What is refused before the first stage, and the log that every stage leaves."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from compress.cli.main import main
from compress.data.base import open_dataset
from compress.errors import ArtifactError
from compress.recipe import readiness
from compress.recipe.readiness import check_target_disk

RECIPE = """\
model: builtin:digits-vit
data: {{calibration: builtin:digits#calibration, test: {test}}}
stages:
  - prune: {{method: {method}, keep: 2, members: 2}}
  - fuse
  - eval: {{latency: false, memory: false, intervals: false}}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "test.csv").write_text("text,label\na fine day,3\n")
    return tmp_path / "recipe.yaml"


def run(recipe: Path, *arguments: str) -> int:
    return main(["run", str(recipe), "-o", str(recipe.parent / "out"), *arguments])


@pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["plan", "run"])
def test_data_of_another_kind_stop_a_run_before_its_first_stage(
    recipe: Path, dry: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe.write_text(RECIPE.format(test="test.csv", method="magnitude"))
    assert run(recipe, *dry) == 2
    error = capsys.readouterr().err
    assert "stage 03-eval" in error
    assert "holds text samples, but the model reads image samples" in error
    assert not (recipe.parent / "out" / "01-prune").exists()


@pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["plan", "run"])
def test_a_label_that_the_model_does_not_know_stops_a_run_before_its_first_stage(
    recipe: Path, dry: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # The digits as a folder of images, one class renamed.

    digits = open_dataset("builtin:digits#test")
    for index in range(30):
        sample = digits[index]
        folder = tmp_path / "images" / (f"digit-{sample.label}" if sample.label == 3 else str(sample.label))
        folder.mkdir(parents=True, exist_ok=True)
        sample.value.save(folder / f"{index}.png")
    recipe.write_text(RECIPE.format(test="images", method="magnitude"))
    assert run(recipe, *dry) == 2
    error = capsys.readouterr().err
    assert "stage 03-eval" in error
    assert "digit-3" in error
    assert not (recipe.parent / "out" / "01-prune").exists()


def test_a_calibration_set_whose_labels_nobody_reads_may_have_others(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RECIPE.format(test="builtin:digits#test", method="random").replace(
        "builtin:digits#calibration", "builtin:photos"
    )
    recipe.write_text(text)
    assert run(recipe, "--dry-run") == 0
    recipe.write_text(text.replace("random", "taylor"))
    assert run(recipe, "--dry-run") == 2
    assert "stage 01-prune" in capsys.readouterr().err


def test_a_disk_that_is_too_full_is_refused_with_both_figures(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = namedtuple("usage", "total used free")
    recipe.write_text(RECIPE.format(test="builtin:digits#test", method="magnitude"))
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10**9, 10**9 - 10**6, 10**6))
    assert run(recipe, "--dry-run") == 2
    assert "needs about" in (error := capsys.readouterr().err)
    assert "has 1 MB left" in error


def test_a_target_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness.os, "access", lambda place, mode: False)
    with pytest.raises(ArtifactError, match="cannot be written"):
        check_target_disk(tmp_path / "new" / "out", 0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is a file"):
        check_target_disk(tmp_path / "file" / "out", 0)


def test_every_stage_keeps_a_log_also_when_it_is_quiet_and_fails(recipe: Path) -> None:
    recipe.write_text(RECIPE.format(test="builtin:digits#test", method="magnitude"))
    assert run(recipe, "--quiet") == 0
    logs = recipe.parent / "out" / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["01-prune.log", "02-fuse.log", "03-eval.log"]
    fused = (logs / "02-fuse.log").read_text()
    assert "INFO compress " in fused
    assert "fuse: maps " in fused
    assert "complete after" in fused
    assert run(recipe, "--quiet", "--set", "prune.branch_layer=auto", "--set", "prune.min_disagreement=1.0") == 2
    pruned = (logs / "01-prune.log").read_text()
    assert pruned.count("complete after") == 1
    assert "ERROR ended after" in pruned.splitlines()[-1]
    assert "min-disagreement" in pruned.splitlines()[-1]
