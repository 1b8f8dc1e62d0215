from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compress.recipe.stages.base import Stage
from compress.registry import Registry


@pytest.fixture
def toy_stages(monkeypatch: pytest.MonkeyPatch) -> Registry[type[Stage[Any]]]:
    """The stages split, join and count; see toy_stages.py."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import toy_stages

    toy_stages.executed()
    return Registry("stage", {"split": "toy_stages:Split", "join": "toy_stages:Join", "count": "toy_stages:Count"})


@pytest.fixture
def executed(toy_stages: Registry[type[Stage[Any]]]) -> Callable[[], list[str]]:
    """Names of the folders that the toy stages computed since the last call."""
    import toy_stages

    return toy_stages.executed


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a recipe and return its path."""

    def write_recipe(text: str, name: str = "recipe.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_recipe
