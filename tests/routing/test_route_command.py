"""``compress route`` and the recipe stage, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from compress.artifact.store import load_model
from compress.cli.main import main
from compress.recipe.read import read_recipe
from compress.recipe.stages.route import RouteStage
from compress.transformer.routing import routed_layers

RECIPE = """\
model: builtin:digits-vit
data: {train: "builtin:digits#calibration", test: "builtin:digits#calibration"}
stages:
  - route: {blocks: 3, capacity: 0.25, steps: 2, train: router, teacher: single}
"""


def test_a_call_and_its_repetition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "routed"
    command = ["route", "builtin:digits-vit", "-o", str(out), "--data", "builtin:digits#calibration", "--steps", "2"]
    chosen = ["--blocks", "2", "--capacity", "0.25", "--blocks", "1", "--capacity", "0.5", "--device", "cpu"]
    assert main([*command, *chosen, "--json", "-"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["schema"] == "compress/route"
    assert [routes["block"] for routes in plain["blocks"]] == [1, 2]
    assert [index for index, _ in routed_layers(load_model(out))] == [1, 2]
    assert main([*command, *chosen]) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_a_wrong_capacity_names_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["route", "builtin:digits-vit", "-o", str(tmp_path / "out"), "--data", "builtin:digits#calibration"]
    assert main([*command, "--capacity", "1.5"]) == 2
    assert "--capacity" in capsys.readouterr().err
    assert main([*command, "--blocks", "99"]) == 2
    assert "no block 99" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_recipe_routes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    recipe = read_recipe(path)
    assert RouteStage().data(recipe.data, recipe.stages[0].options) == {"train": "builtin:digits#calibration"}  # type: ignore[arg-type]
    assert main(["run", str(path), "-o", str(tmp_path / "out")]) == 0
    found = load_model(tmp_path / "out" / "01-route")
    assert [(index, layer.router.capacity) for index, layer in routed_layers(found)] == [(3, 0.25)]
