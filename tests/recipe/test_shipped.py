from __future__ import annotations

from pathlib import Path

import pytest

from compress.errors import RecipeError
from compress.recipe import shipped
from compress.recipe.chain import check_chain
from compress.recipe.read import read_recipe
from compress.recipe.shipped import find_recipe, shipped_recipes


def test_digits_is_shipped() -> None:
    assert find_recipe("digits").name == "digits.yaml"


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_is_valid(name: str) -> None:
    recipe = read_recipe(find_recipe(name))
    check_chain(recipe)


def test_a_file_comes_before_a_shipped_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("model: m")
    assert find_recipe("digits") == Path("digits")


def test_a_folder_of_the_name_is_not_taken_for_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert find_recipe("digits").is_file()


def test_an_unknown_name_lists_the_shipped_recipes() -> None:
    with pytest.raises(RecipeError, match=r"shipped: .*digits.*did you mean 'digits'\?"):
        find_recipe("digit")
    with pytest.raises(RecipeError, match=r"shipped: .*digits.*give the path of a YAML file"):
        find_recipe("wxyz")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="there is no such recipe file"):
        find_recipe(str(tmp_path / "absent.yaml"))


def test_the_wheels_copy_comes_before_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("compress/recipes", "recipes"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "digits.yaml").write_text("model: m")
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "compress")
    assert find_recipe("digits") == tmp_path / "compress/recipes/digits.yaml"
    (tmp_path / "compress/recipes/digits.yaml").unlink()
    with pytest.raises(RecipeError):
        find_recipe("digits")
    (tmp_path / "pyproject.toml").write_text("")
    assert find_recipe("digits") == tmp_path / "recipes/digits.yaml"
