"""``compress tune`` and the recipe stage, through the real command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compress.artifact.folder import verify_folder
from compress.artifact.store import read_config, read_provenance
from compress.cli.main import main
from compress.errors import RecipeError
from compress.recipe.chain import check_chain
from compress.recipe.plan import plan_recipe
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe
from compress.tuning.job import Tuned
from compress.tuning.log import LOG_NAME, last_loss

FROM_SCRATCH = [
    "tune",
    "timm:vit_tiny_patch16_224",
    "--from-scratch",
    *(f"--argument={text}" for text in ("img_size=8", "patch_size=4", "in_chans=1", "embed_dim=24", "depth=3")),
    "--argument=num_heads=4",
    *(f"--preprocessing={text}" for text in ("mean=[0.3]", "std=[0.4]", "resize=squash", "interpolation=bilinear")),
    "--data=builtin:digits#calibration",
    "--batch-size=50",
    "--lr=1e-3",
]
MODEL = """\
model:
  adapter: timm
  name: vit_tiny_patch16_224
  weights: random
  arguments: {img_size: 8, patch_size: 4, in_chans: 1, embed_dim: 24, depth: 3, num_heads: 4, num_classes: 10}
  preprocessing: {mean: [0.3], std: [0.4], resize: squash, interpolation: bilinear}
data:
  train: builtin:digits#calibration
  validation: builtin:digits#calibration
  calibration: builtin:digits#calibration
  test: builtin:digits#test
seed: 5
stages:
"""


def recipe(tmp_path: Path, stages: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(MODEL + stages)
    return path


def test_from_scratch_to_a_model_and_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model"
    assert main([*FROM_SCRATCH, "-o", str(out), "--json", "-", "--epochs=2"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["schema"] == "compress/tune"
    (model,) = plain["models"]
    assert model.pop("loss") == last_loss(out / LOG_NAME) > 0
    assert model == {"name": "model", "steps": 8, "metric": None, "before": None, "after": None, "best_step": None}
    assert read_config(out).labels == tuple("0123456789")
    again = ["tune", str(out), "-o", str(tmp_path / "more"), "--data=builtin:digits#train", "--steps=1"]
    assert main([*again, "--validation=builtin:digits#calibration"]) == 0
    assert "model: 1 steps; cls/accuracy" in capsys.readouterr().out
    assert main(again) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*again[:3], str(out), *again[4:]]) == 2
    assert "is the input" in capsys.readouterr().err


def test_the_outcome_is_a_metric_or_the_loss() -> None:
    assert Tuned("model", 8, loss=0.25).outcome() == "8 steps; training loss 0.2500"
    measured = Tuned("model", 8, "cls/nll", before=1.0, after=0.5, best_step=4, loss=0.25)
    assert measured.outcome() == "8 steps; cls/nll 1.0000 before, 0.5000 after step 4"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lr", "0"], "--lr"),
        (["--epochs", "0"], "--epochs"),
        (["--argument", "img_size"], "--argument: 'img_size' is no NAME=VALUE"),
        (["--freeze", "head"], "--freeze"),
        (["--patience", "3"], "--patience: needs a validation set"),
        (["--batch-size", "none"], "--batch-size"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FROM_SCRATCH, "-o", str(tmp_path / "out"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_recipe_trains_prunes_tunes_and_fuses(tmp_path: Path) -> None:
    stages = """\
  - tune: {name: train, from_scratch: true, epochs: 2, batch_size: 50, lr: 1e-3}
  - prune: {members: 2, keep: 2, branch_layer: 1, trunk_keep: 4, max_overlap: 0.4}
  - tune: {name: members, steps: 2, batch_size: 50}
  - fuse
  - tune: {name: joint, steps: 2, batch_size: 50, teacher: single, diversity: 0.1}
"""
    loaded = read_recipe(recipe(tmp_path, stages))
    plan = plan_recipe(loaded, tmp_path / "out")
    kinds = [stage.model.kind for stage in plan.stages if stage.model is not None]
    assert kinds == ["model", "members", "members", "model", "model"]
    result = run_recipe(loaded, tmp_path / "out")
    assert [outcome.folder.name for outcome in result.outcomes] == [
        "01-train", "02-prune", "03-members", "04-fuse", "05-joint",
    ]  # fmt: skip
    for outcome in result.outcomes:
        verify_folder(outcome.folder)
    assert read_provenance(tmp_path / "out" / "01-train").options["seed"] == 5
    assert "teacher" in read_provenance(tmp_path / "out" / "05-joint").notes["data"]
    assert not list((tmp_path / "out").glob(".*")), "no state is left"
    again = run_recipe(loaded, tmp_path / "out")
    assert not any(outcome.computed for outcome in again.outcomes)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("  - tune: {metric: cls/acuracy}\n", "did you mean 'cls/accuracy'"),
        ("  - tune: {teacher: single}\n", "a model cannot be its own teacher"),
        ("  - prune\n  - tune: {from_scratch: true}\n", "from_scratch throws away"),
        ("  - tune: {learning_rate: 1e-3}\n", "'lr'"),
    ],
)
def test_mistakes_in_a_recipe_are_found_before_anything_runs(tmp_path: Path, stages: str, message: str) -> None:
    with pytest.raises(RecipeError if "metric" not in stages else Exception, match=message):
        check_chain(read_recipe(recipe(tmp_path, stages)))
