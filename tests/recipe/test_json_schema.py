"""The JSON Schema of recipes against the reader of recipes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from compress.cli.main import main
from compress.errors import RecipeError
from compress.recipe.json_schema import recipe_json_schema
from compress.recipe.read import read_recipe
from compress.recipe.shipped import find_recipe, shipped_recipes

SHIPPED = Path(__file__).parents[2] / "recipes" / "recipe.schema.json"
RECIPE = """\
model: {adapter: timm, name: vit_base_patch16_224, labels: [0, 1, two]}
data: {train: ./train, test: ./test, calibration: ./train, ood: {svhn: ./svhn}}
seed: 1
stages:
  - prune: {keep: 0.5, members: 2, branch_layer: auto, max_overlap: 0.5}
  - tune: {name: again, epochs: 2, teacher: single}
  - fuse
  - budget: {max: 0.5}
  - calibrate:
  - eval: {compare: [single, {deep_ensemble: [./a, ./b]}], fail_if: ["cal/ece > 0.05"]}
"""


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = recipe_json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_the_shipped_file_is_the_schema_that_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--json-schema"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed) == recipe_json_schema()
    assert SHIPPED.read_text(encoding="utf-8") == printed, (
        "compress validate --json-schema > recipes/recipe.schema.json"
    )


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_shipped_recipes_fit_and_name_the_schema(validator: Draft202012Validator, name: str) -> None:
    text = find_recipe(name).read_text(encoding="utf-8")
    assert list(validator.iter_errors(yaml.safe_load(text))) == []
    assert text.startswith("# yaml-language-server: $schema=")


def test_a_recipe_with_every_kind_of_value_fits(validator: Draft202012Validator, write: Callable[[str], Path]) -> None:
    read_recipe(write(RECIPE))
    assert [error.message for error in validator.iter_errors(yaml.safe_load(RECIPE))] == []


def test_what_is_resolved_and_stored_beside_a_run_fits(
    validator: Draft202012Validator, write: Callable[[str], Path]
) -> None:
    resolved = read_recipe(write(RECIPE)).to_yaml()
    assert [error.message for error in validator.iter_errors(yaml.safe_load(resolved))] == []


@pytest.mark.parametrize(
    "change",
    [
        lambda recipe: recipe.update(stage=[]),
        lambda recipe: recipe.pop("model"),
        lambda recipe: recipe.update(stages=[]),
        lambda recipe: recipe["data"].update(tests="./test"),
        lambda recipe: recipe["stages"].append("prine"),
        lambda recipe: recipe["stages"].append({"prune": {"keeep": 4}}),
        lambda recipe: recipe["stages"].append({"prune": {"method": "tailor"}}),
        lambda recipe: recipe["stages"].append({"prune": {}, "fuse": {}}),
        lambda recipe: recipe["stages"].append({"prune": {"members": 0}}),
        lambda recipe: recipe.update(seed=-1),
    ],
)
def test_what_the_reader_refuses_does_not_fit(
    validator: Draft202012Validator, write: Callable[[str], Path], change: Callable[[dict[str, Any]], object]
) -> None:
    recipe = yaml.safe_load(RECIPE)
    change(recipe)
    assert list(validator.iter_errors(recipe))
    with pytest.raises(RecipeError):
        read_recipe(write(yaml.safe_dump(recipe)))
