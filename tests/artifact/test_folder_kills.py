"""A kill, or a refused change, at any moment of a save leaves nothing that loads by half; two writers never mix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import compress.artifact.folder

SCRIPT = Path(__file__).with_name("kill_saves.py")
ROOT = Path(compress.artifact.folder.__file__).parents[2]


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory where there is one: these tests sync thousands of times and ask nothing of the disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def outcomes(mode: str, folder: Path) -> list[dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, SCRIPT, mode, folder],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results: list[dict[str, Any]] = json.loads(run.stdout)
    return results


def check(results: list[dict[str, Any]]) -> None:
    for result in results:
        if not result["overwrite"]:
            assert result["state"] in {"absent", "new"}, result
        elif result["state"] == "absent":
            assert result["retired"] == ["old"], result  # between the two renames; the next save puts it back
        else:
            assert result["state"] in {"old", "new"}, result
        assert result["killed"] or result["state"] == "new", result
        assert result["next"] == "next", result
        assert result["left"] == ["out"], result


def test_killed_before_every_change(place: Path) -> None:
    results = outcomes("steps", place / "kills")
    check(results)
    assert sum(result["killed"] for result in results) > 50
    assert {"absent", "old", "new"} == {result["state"] for result in results}


def test_killed_at_random_moments(place: Path) -> None:
    results = outcomes("random", place)
    check(results)
    assert sum(result["killed"] for result in results) >= 20


def test_refused_every_change(place: Path) -> None:
    results = outcomes("refuse", place)
    for result in results:
        assert result["code"] in (0, 2), result
        assert result["next"] == "next", result
        assert result["left"] == ["out"], result
        if result["code"] == 0:  # only what clears up may fail without a word
            assert result["state"] == "new", result
            continue
        before = ["old"] if result["overwrite"] else ["absent"]
        # After a refused sync of the parent folder the new artifact stands, and after a refused way back the old one
        # waits beside it for the next save.
        assert result["state"] in (*before, "new") or result["retired"] == before, result
        assert result["said"].isprintable(), result
        assert "/out" in result["said"] or ".partial" in result["said"], result
        assert "cannot be written (" in result["said"], result
        assert "; " in result["said"], result
    refused = [result for result in results if result["code"] == 2]
    assert {result["error"] for result in refused} == {"ENOSPC", "EACCES", "EROFS"}
    assert len(refused) > 30


def test_of_two_writers_one_wins(place: Path) -> None:
    *results, rest = outcomes("race", place)
    for result in results:
        assert sorted(result["exits"].values()) == [0, 2], result
        winner = min(result["exits"], key=result["exits"].get)
        assert result["state"] == winner, result
    assert rest["left"] == sorted(str(number) for number in range(20))
