"""The wheel alone, in an empty environment outside the checkout, runs the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    return next(folder.glob("compress_transformers-*.whl"))


@pytest.mark.slow
def test_the_wheel_holds_recipes_and_the_demo_model(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "compress/recipes/digits.yaml" in names
    assert "compress/models/digits-vit/MANIFEST.json" in names
    weights = zipfile.ZipFile(wheel).getinfo("compress/models/digits-vit/model.safetensors")
    assert weights.file_size <= 4 * 2**20
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(wheel)], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(tmp_path / "venv" / "bin" / "compress"), "run", "digits", "-o", str(tmp_path / "run")]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    assert "fused" in found.stdout
    assert "single" in found.stdout
