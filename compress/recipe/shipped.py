"""Find a recipe: a file, or one that comes with the package."""

from __future__ import annotations

from pathlib import Path

from compress.errors import RecipeError
from compress.home import expanded
from compress.registry import nearest

SUFFIXES = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parents[1]


def shipped_folders() -> tuple[Path, ...]:
    """Where shipped recipes lie: within an installed package, and beside the package in a checkout."""
    checkout = _PACKAGE.parent
    beside = (checkout / "recipes",) if (checkout / "pyproject.toml").is_file() else ()
    return (_PACKAGE / "recipes", *beside)


def shipped_recipes() -> dict[str, Path]:
    """Name and file of every shipped recipe, by name."""
    found: dict[str, Path] = {}
    for folder in shipped_folders():
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def find_recipe(name: str) -> Path:
    """The recipe file called ``name``: a path first, then the name of a shipped recipe.

    Raises:
        RecipeError: there is neither; the message lists the shipped recipes.
    """
    path = expanded(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if path.suffix in SUFFIXES or len(path.parts) > 1:
        raise RecipeError("there is no such recipe file", where=name, fix="check the path")
    hint = nearest(name, shipped)
    names = ", ".join(shipped) or "none"
    raise RecipeError(
        f"{name!r} is no file and no shipped recipe (shipped: {names})",
        where="RECIPE",
        fix=hint if hint.startswith("did you mean") else "give the path of a YAML file",
    )
