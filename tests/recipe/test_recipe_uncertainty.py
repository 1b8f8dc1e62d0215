"""Recipes that calibrate, compare with every baseline and keep their predictions."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny.pictures import pictures, save_pictures
from tiny.timm_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, save_model
from compress.cli.main import main
from compress.errors import RecipeError
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe
from compress.recipe.stages.evaluate import EvaluateEntry

RECIPE = """
model: m
data: {calibration: data, test: data}
runtime: {device: cpu, batch_size: 8}
stages:
  - prune: {method: random, members: 2, keep: 2, branch_layer: 1}
  - fuse
  - calibrate: {target_coverage: 0.8}
  - eval:
      compare: [single, members, pruned, mc_dropout, temperature, {deep_ensemble: [m, other]}]
      dropout_rate: 0.1
      dropout_passes: 2
      shift: [contrast]
      latency: false
      memory: false
      intervals: false
      fail_if: ["cls/accuracy < 0", "shift/ece > 0"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recipe")
    model = CASES["timm plain"]().model
    for name in ("m", "other"):
        save_model(model, root / name, Provenance(stage="test"))
    save_pictures(pictures(15, model.labels), root / "data")
    (root / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return root


def test_every_baseline_in_one_recipe(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Paths are the recipe's, wherever the command is run.
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(folder / "recipe.yaml")
    result = run_recipe(recipe, tmp_path / "out")
    stored = json.loads((tmp_path / "out" / "04-eval" / "result.json").read_text(encoding="utf-8"))
    names = ["single", "members", "calibrated", "pruned", "mc_dropout", "temperature", "deep_ensemble"]
    assert [model["name"] for model in stored["models"]] == names
    assert [model["baseline"] for model in stored["models"]] == [name != "calibrated" for name in names]
    assert {point["corruption"] for point in stored["shift"]} == {"contrast"}
    config = load_model(tmp_path / "out" / "03-calibrate").config
    assert config.temperature != 1
    assert config.abstention is not None
    assert len(result.failed_gates()) == 1
    cases = list(ElementTree.parse(tmp_path / "out" / "04-eval" / "junit.xml").getroot().iter("testcase"))
    assert {case.get("classname") for case in cases} == {"calibrated"}
    assert len(cases) == 2
    assert main(["eval", "--from", str(tmp_path / "out" / "04-eval"), "--json", "-", "--no-intervals"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert [model["metrics"] for model in again["models"]] == [model["metrics"] for model in stored["models"]]
    assert run_recipe(recipe, tmp_path / "out").outcomes[3].computed is False
    # Another ensemble member is another evaluation.
    changed = recipe.model_copy(update={"stages": (*recipe.stages[:3], _with_ensemble(recipe.stages[3], folder))})
    assert [outcome.computed for outcome in run_recipe(changed, tmp_path / "out").outcomes] == [False] * 3 + [True]


def _with_ensemble(entry, folder: Path):  # type: ignore[no-untyped-def]
    options = entry.options.model_copy(
        update={"compare": EvaluateEntry(compare=({"deep_ensemble": [str(folder / "other")] * 2},)).compare}
    )
    return entry.model_copy(update={"options": options})


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ("- eval: {compare: [pruned]}", "compare names pruned, but no stage before makes members"),
        ("- eval: {compare: [mc_dropot]}", "compare"),
        ("- eval: {compare: [{deep_ensemble: [m]}]}", "compare"),
        ("- eval: {compare: [{deep_ensemble: [m, m]}, {deep_ensemble: [m, m]}]}", "one deep_ensemble is enough"),
        ("- eval: {shift: [nois]}", "did you mean 'noise'"),
        ("- calibrate: {target_coverage: 0.5, target_risk: 0.1}", "cannot be combined with a target coverage"),
        ("- calibrate: {temperature: false}", "a target risk is needed"),
    ],
)
def test_mistakes_are_found_before_anything_runs(folder: Path, tmp_path: Path, stages: str, message: str) -> None:
    path = tmp_path / "r.yaml"
    data = f"{{test: {folder / 'data'}, calibration: {folder / 'data'}}}"
    path.write_text(f"model: {folder / 'm'}\ndata: {data}\nstages:\n  {stages}\n", encoding="utf-8")
    with pytest.raises(RecipeError, match=message):
        run_recipe(read_recipe(path), tmp_path / "out")


def test_temperature_needs_data_to_fit_on(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    for stage in ("eval: {compare: [temperature]}", "calibrate: {}"):
        text = f"model: {folder / 'm'}\ndata: {{test: {folder / 'data'}}}\nstages:\n  - {stage}\n"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(RecipeError, match=r"no data\.calibration"):
            run_recipe(read_recipe(path), tmp_path / "out")
