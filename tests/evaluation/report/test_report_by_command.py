"""The report through the real command line and in a recipe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny.all_cases import CASES
from tiny.whole_run import TEXT, write_recipe

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.cli.main import main
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe

SIZES = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 24, "depth": 2, "num_heads": 4}


@pytest.fixture
def artifact(tmp_path: Path) -> tuple[Path, Path]:
    """A tiny model, and a folder of class folders with two pictures each."""
    model = CASES["timm plain"]().model
    save_model(model, tmp_path / "model", Provenance(stage="tune"))
    generator = np.random.default_rng(0)
    for label in model.labels:
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(2):
            pixels = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / label / f"{number}.png")
    return tmp_path / "model", tmp_path / "data"


def test_eval_writes_a_report(artifact: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = artifact
    target = tmp_path / "report"
    command = ["eval", str(model), "--data", str(data), "--no-latency", "--report", str(target), "--device", "cpu"]
    assert main(command) == 0
    assert "accuracy" in capsys.readouterr().out
    page = (target / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 10
    content = json.loads((target / "report.json").read_text(encoding="utf-8"))
    assert content["subject"] == "model"
    assert main(command) == 0  # an earlier report is replaced


def test_a_folder_with_something_else_is_refused_before_anything_is_computed(
    artifact: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = artifact
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert main(["eval", str(model), "--data", str(data), "--report", str(tmp_path / "mine")]) == 2
    captured = capsys.readouterr()
    assert "notes.txt" in captured.err
    assert captured.out == ""


def test_a_recipe_puts_the_report_beside_the_result(tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **SIZES)
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    (tmp_path / "recipe.yaml").write_text(
        f"""\
model:
  adapter: timm
  name: vit_tiny_patch16_224
  weights: vit.safetensors
  labels: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  arguments: {json.dumps(SIZES)}
  preprocessing: {{mean: [0.5], std: [0.5]}}
data:
  test: builtin:digits#test
stages:
  - eval: {{report: true, latency: false, intervals: false}}
""",
        encoding="utf-8",
    )
    result = run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "out")
    assert sorted(path.name for path in (result.out / "01-eval" / "report").iterdir()) == [
        "index.html",
        "pictures",
        "report.json",
    ]
    page = result.out / "01-eval" / "report" / "index.html"
    before = page.stat().st_mtime_ns
    assert "up to date" in run_recipe(read_recipe(tmp_path / "recipe.yaml"), tmp_path / "out").table()
    assert page.stat().st_mtime_ns == before


def test_members_cut_by_circuits_have_a_report_with_head_maps_without_importance(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    stages = """\
  - prune: {method: circuit, members: 2, keep: 2}
  - fuse
  - eval: {compare: [single, members], report: true, latency: false, intervals: false}
"""
    recipe.write_text(TEXT.partition("  - prune")[0] + stages, encoding="utf-8")
    result = run_recipe(read_recipe(recipe), tmp_path / "out")
    report = result.out / "03-eval" / "report"
    content = json.loads((report / "report.json").read_text(encoding="utf-8"))
    assert content["heads"]
    assert all(found["importance"] is None for found in content["heads"])
