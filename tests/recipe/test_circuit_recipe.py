"""Circuits in a recipe: their foreign validation set, and a branch layer that is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from compress.cli.main import main
from compress.errors import CompressError, RecipeError
from compress.recipe.plan import plan_recipe
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe

SIZES = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 24, "depth": 2, "num_heads": 4}
TEXT = f"""\
model:
  adapter: timm
  name: vit_tiny_patch16_224
  weights: vit.safetensors
  labels: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  arguments: {json.dumps(SIZES)}
  preprocessing: {{mean: [0.5], std: [0.5]}}
data:
  calibration: builtin:digits#calibration
  ood_validation: builtin:photos
stages:
  - prune: {{method: circuit, keep: 2, trunk_keep: 4, branch_layer: auto, min_disagreement: 0.0}}
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("circuits")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **SIZES)
    save_file(model.state_dict(), folder / "vit.safetensors")
    path = folder / "recipe.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_circuits_are_searched_with_the_foreign_validation_set(recipe: Path, tmp_path: Path) -> None:
    run_recipe(read_recipe(recipe), tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "01-prune" / "provenance.json").read_text())
    assert [circuit["objective"] for circuit in stored["notes"]["circuits"]] == ["task", "ood", "avg"]
    assert stored["options"]["branch_layer"] == 1
    again = run_recipe(read_recipe(recipe), tmp_path / "out")
    assert [outcome.computed for outcome in again.outcomes] == [False]
    other = run_recipe(read_recipe(recipe, ["data.ood_validation=builtin:digits#test"]), tmp_path / "out")
    assert [outcome.computed for outcome in other.outcomes] == [True], "the foreign set is part of the stage's key"


def test_a_branch_layer_that_is_to_be_found_is_planned_as_the_dearest(recipe: Path, tmp_path: Path) -> None:
    found, first = (
        plan_recipe(read_recipe(recipe, [f"prune.branch_layer={branch}"]), tmp_path) for branch in ("auto", "0")
    )
    assert found.stages[0].model == first.stages[0].model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("prune.branch_layer=last", r"branch_layer.*'last'.*'auto'"),
        ("prune.branch_layer=-1", r"branch_layer.*-1"),
        ("prune.scope=global", "circuits have no global scope"),
        ("prune.objective=odd", "did you mean 'ood'"),
    ],
)
def test_what_cannot_work_is_said_before_anything_runs(recipe: Path, tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(CompressError, match=message):
        run_recipe(read_recipe(recipe, [change]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_objective_without_foreign_data_is_refused(recipe: Path, tmp_path: Path) -> None:
    alone = recipe.with_name("alone.yaml")
    alone.write_text(TEXT.replace("  ood_validation: builtin:photos\n", ""), encoding="utf-8")
    with pytest.raises(CompressError, match=r"01-prune.*data\.ood_validation"):
        run_recipe(read_recipe(alone, ["prune.objective=avg"]), tmp_path / "out")
    with pytest.raises(RecipeError, match=r"no data\.calibration"):
        bare = recipe.with_name("bare.yaml")
        bare.write_text(TEXT.replace("  calibration: builtin:digits#calibration\n", ""), encoding="utf-8")
        run_recipe(read_recipe(bare), tmp_path / "out")


def test_the_command_finds_the_branch_layer(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        *("prune", "timm:vit_tiny_patch16_224", "--weights", str(recipe.with_name("vit.safetensors"))),
        *("-o", str(tmp_path / "pruned"), "--data", "builtin:digits#calibration", "--ood", "builtin:photos"),
    ]
    assert main([*arguments, "--method", "magnitude"]) == 2
    assert "--ood: magnitude uses no foreign data" in capsys.readouterr().err
    assert main([*arguments, "--method", "circuit", "--branch-layer", "later"]) == 2
    assert "'later' is neither a number from 0 on nor auto" in capsys.readouterr().err
