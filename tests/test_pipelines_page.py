"""The examples of docs/pipelines.md do what the page says: they run here, and end with the exit codes that it lists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from warm_program import warm_programs

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
GATE = EXAMPLES / "gate.sh"
WORKFLOW: dict[str, Any] = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["quality"]["steps"]
RECIPE = """
model: builtin:digits-vit
data: {calibration: "builtin:digits#calibration", test: "builtin:digits#test[:100]"}
stages:
  - prune: {method: magnitude, members: 2, keep: 6, branch_layer: 3, trunk_keep: 12}
  - fuse
  - eval: {compare: [single], latency: false, memory: false, intervals: false, report: true, fail_if: ["cal/ece > 0"]}
"""
# Stands in for the program: ends with CODE when it is called for STEP.
STAND_IN = '#!/usr/bin/env bash\necho "a table"\n[[ $1 != "$STEP" ]] || exit "$CODE"\n'


def bash(*arguments: str, folder: Path, first: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Call bash in a folder; programs are looked for in ``first`` before the others."""
    environment = {**os.environ, "PATH": f"{first}{os.pathsep}{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def gate(folder: Path, first: str, **variables: str) -> tuple[int, str]:
    done = bash(str(GATE), folder=folder, first=first, **variables)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def programs() -> Iterator[str]:
    with warm_programs() as folder:
        yield folder


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """A folder with a program ``compress`` that computes nothing."""
    program = tmp_path / "programs" / "compress"
    program.parent.mkdir()
    program.write_text(STAND_IN, encoding="utf-8")
    program.chmod(0o755)
    return str(program.parent)


DIGITS = {
    "MODEL": "builtin:digits-vit",
    "CALIBRATION": "builtin:digits#calibration[:64]",
    "TEST": "builtin:digits#test[:100]",
    "MEMBERS": "2",
    "BRANCH_LAYER": "3",
}


def test_the_script_passes_a_good_model_and_stops_at_a_bad_one(tmp_path: Path, programs: str) -> None:
    code, said = gate(tmp_path, programs, **DIGITS, KEEP="11", MAX_LOSS="0.2", MAX_ECE="0.5", MAX_FLOPS="3")
    assert code == 0, said
    assert said.endswith("gate: good enough; the model is runs/gate/fused\n")
    assert (tmp_path / "runs/gate/fused/MANIFEST.json").is_file()

    # In the same folder, as a pipeline would.
    code, said = gate(tmp_path, programs, **DIGITS, KEEP="1", MAX_LOSS="0.01")
    assert code == 3, said
    assert "gate: eval: not good enough" in said
    suite = ElementTree.parse(tmp_path / "runs/gate/gates.xml").getroot()
    assert suite.attrib["tests"] == "3"
    assert int(suite.attrib["failures"]) >= 1


def test_the_script_says_what_is_missing(tmp_path: Path, programs: str) -> None:
    code, said = gate(tmp_path, programs, MODEL="builtin:digits-vit")
    assert (code, said) == (2, "gate: set MODEL, CALIBRATION and TEST\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["prune", "fuse", "eval"])
@pytest.mark.parametrize(("code", "words"), [(1, "a bug"), (2, "cannot work"), (3, "not good"), (130, "interrupted")])
def test_the_script_hands_on_every_exit_code(tmp_path: Path, stand_in: str, step: str, code: int, words: str) -> None:
    ended, said = gate(tmp_path, stand_in, MODEL="m", CALIBRATION="c", TEST="t", STEP=step, CODE=str(code))
    assert ended == code
    assert said.startswith(f"gate: {step}: ")
    assert words in said


def named(name: str) -> dict[str, Any]:
    return next(step for step in STEPS if step.get("name") == name)


def run_steps(folder: Path, first: str, *names: str, **variables: str) -> subprocess.CompletedProcess[str]:
    text = "\n".join(named(name)["run"] for name in names)
    summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    github = ("--noprofile", "--norc", "-eo", "pipefail", "-c")  # as it starts a step's script
    return bash(*github, text, folder=folder, first=first, **WORKFLOW["env"], **summary, **variables)


def test_the_workflow_runs_a_recipe_and_fails_by_its_gate(tmp_path: Path, programs: str) -> None:
    (tmp_path / WORKFLOW["env"]["RECIPE"]).write_text(RECIPE, encoding="utf-8")
    done = run_steps(tmp_path, programs, "Check the recipe", "Run the recipe")
    assert done.returncode == 3, done.stderr
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("All stages are complete, but a gate failed")
    assert "fused" in summary
    uploaded = named("Upload figures, gates and report")["with"]["path"].replace(
        "${{ env.RUN }}", WORKFLOW["env"]["RUN"]
    )
    for pattern in uploaded.split():
        assert list(tmp_path.glob(pattern)), f"the run leaves nothing at {pattern}"
    run = tmp_path / WORKFLOW["env"]["RUN"]
    shutil.copytree(run, tmp_path / "kept")  # what the cache keeps and restores: the files, on another machine
    shutil.rmtree(run)
    shutil.copytree(tmp_path / "kept", run)
    again = run_steps(tmp_path, programs, "Run the recipe")
    assert again.returncode == 3, again.stderr
    assert again.stdout.count("up to date") == 3


@pytest.mark.parametrize(
    ("code", "words"), [(0, "all gates"), (1, "a bug"), (2, "cannot work"), (3, "gate failed"), (130, "Interrupted")]
)
def test_the_workflow_hands_on_every_exit_code(tmp_path: Path, stand_in: str, code: int, words: str) -> None:
    done = run_steps(tmp_path, stand_in, "Run the recipe", STEP="run", CODE=str(code))
    assert done.returncode == code
    summary = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert words in summary.splitlines()[0]
    assert "```text\na table\n```" in summary


def test_the_workflow_keeps_the_run_folder_and_names_fixed_versions() -> None:
    restored, saved = named("Restore the run folder"), named("Save the run folder")
    assert restored["with"]["path"] == saved["with"]["path"] == "${{ env.RUN }}"
    assert restored["with"]["key"] == saved["with"]["key"]
    assert saved["if"] == named("Upload figures, gates and report")["if"] == "always()"
    for step in STEPS:
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"actions/[\w/-]+@v\d+", step["uses"])
        assert "${{" not in step.get("run", ""), "an expression in a script is code of whoever opens a pull request"
