from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compress.artifact.folder import verify_folder

TOYS = Path(__file__).parents[1] / "recipe"
STAGES = ("split", "join", "count", "slow")
# The command with the toy stages of tests/recipe/toy_stages.py beside the real ones.
PROGRAM = f"""\
import sys
sys.path.insert(0, {str(TOYS)!r})
from compress.cli.main import main
from compress.recipe.stages import STAGES
for name in {STAGES!r}:
    STAGES.add(name, f"toy_stages:{{name.capitalize()}}")
sys.exit(main(sys.argv[1:]))
"""
RECIPE = """\
model: m
stages:
  - split: {text: a}
  - join: {text: b}
  - slow: {text: c}
  - join: {name: last, text: d}
  - count: {keep: 0.5}
"""
ARTIFACTS = ["01-split", "02-join", "03-slow", "04-last", "05-count"]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "my recipe.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def start_program(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start_program


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def test_the_default_folder_and_the_result(start: Callable[..., subprocess.Popen[str]], recipe: Path) -> None:
    out, err = (process := start("run", recipe.name, "--json", "-", "--quiet")).communicate()
    # Five letters are too many: the gate of the last stage.
    assert process.returncode == 3
    result = json.loads(out)
    assert result["out"] == "runs/my recipe"
    assert [Path(stage["folder"]).name for stage in result["stages"]] == ARTIFACTS
    assert err.splitlines() == [
        "compress: error: 05-count: too many letters",
        "compress: all stages are complete in runs/my recipe",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_exists_and_continues(
    start: Callable[..., subprocess.Popen[str]], recipe: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "runs" / "my recipe"
    process = start("run", recipe.name, "--set", "slow.seconds=60")
    wait_for(out / "toy.started")
    process.send_signal(number)
    printed, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert printed == ""
    assert err.splitlines()[-2:] == [
        "compress: interrupted",
        "compress: complete so far: runs/my recipe/01-split, runs/my recipe/02-join; the next run continues from there",
    ]
    assert sorted(path.name for path in out.iterdir() if path.name[0].isdigit()) == ARTIFACTS[:2]
    assert not list(out.glob(".*"))

    _, err = (process := start("run", recipe.name)).communicate(timeout=60)
    assert process.returncode == 3
    assert "01-split: up to date" in err
    assert "02-join: up to date" in err
    assert (out / "05-count" / "text").read_text() == "abcda"


@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_kills_at_any_moment_end_in_the_same_artifacts(
    start: Callable[..., subprocess.Popen[str]], recipe: Path, tmp_path: Path, rounds: int
) -> None:
    began = time.monotonic()
    start("run", recipe.name, "-o", "whole").communicate(timeout=60)
    duration = time.monotonic() - began
    expected = {name: verify_folder(tmp_path / "whole" / name).digest for name in ARTIFACTS}
    chance = random.Random(0)
    for _ in range(rounds):
        process = start("run", recipe.name, "-o", "killed")
        time.sleep(chance.uniform(0.3, 1.0) * duration)
        process.kill()
        process.communicate()
        for folder in (tmp_path / "killed").glob("[0-9]*"):
            assert verify_folder(folder).digest == expected[folder.name]
    process = start("run", recipe.name, "-o", "killed")
    process.communicate(timeout=60)
    assert process.returncode == 3
    assert {name: verify_folder(tmp_path / "killed" / name).digest for name in ARTIFACTS} == expected
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [*ARTIFACTS, "logs", "recipe.yaml", "state"]


def test_a_failing_stage_ends_with_what_exists(start: Callable[..., subprocess.Popen[str]], recipe: Path) -> None:
    _, err = (process := start("run", recipe.name, "--set", "last.fail=true")).communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines()[-2] == "compress: error: stage 04-last, --fail: the toy broke; do not ask for it"
    assert err.splitlines()[-1].startswith("compress: complete so far: runs/my recipe/01-split, ")


def test_two_runs_into_one_folder(start: Callable[..., subprocess.Popen[str]], recipe: Path, tmp_path: Path) -> None:
    first = start("run", recipe.name, "--set", "slow.seconds=60")
    wait_for(tmp_path / "runs" / "my recipe" / "toy.started")
    _, err = (second := start("run", recipe.name)).communicate(timeout=60)
    assert second.returncode == 2
    assert "another process is running a recipe there" in err
    first.kill()
    first.communicate()
    (third := start("run", recipe.name)).communicate(timeout=60)
    assert third.returncode == 3
