"""What a run remembers about each stage: ``OUT/state/01-prune.json``, beside the artifact and never inside it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from compress.artifact.durable import read_failure, write_bytes, write_failure
from compress.errors import ArtifactError
from compress.options import Options

if sys.platform != "win32":
    import fcntl

STATE_FOLDER = "state"
MAX_RECORD_BYTES = 64 * 1024


class StageRecord(Options):
    """A finished stage.

    It is written after the artifact's own rename. A kill in between leaves no record, or one with another digest, and
    the stage is done again.
    """

    key: str = Field(description="The stage's key; see compress.recipe.keys.")
    digest: str = Field(description="Hash of the artifact that was written under this key.")


@contextlib.contextmanager
def opened_run(out: Path) -> Iterator[None]:
    """Make ``out`` a run's folder and hold it for this process while the block runs.

    Raises:
        ArtifactError: it holds something else, cannot be written, or another process is running a recipe there.
    """
    state = out / STATE_FOLDER
    try:
        if out.exists() and not state.is_dir() and (not out.is_dir() or any(out.iterdir())):
            raise ArtifactError(
                "exists and is not the folder of an earlier run", where=str(out), fix="choose another folder with -o"
            )
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(error, out) from error
    with _held(state):
        _clear_unfinished(out)
        _clear_unfinished(state)
        yield


@contextlib.contextmanager
def _held(state: Path) -> Iterator[None]:
    """Lock a folder; the system unlocks it when the process ends, however that happens."""
    if sys.platform == "win32":
        yield
        return
    try:
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise read_failure(error, state) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ArtifactError(
            "another process is running a recipe there", where=str(state.parent), fix="wait for it or choose another -o"
        ) from None
    except OSError:
        pass  # A file system without locks: each artifact still has its own claim.
    try:
        yield
    finally:
        os.close(descriptor)


def _clear_unfinished(folder: Path) -> None:
    """Remove files that a killed process was writing. They are never read, so one that resists may stay."""
    for path in folder.glob(".*.partial"):
        if path.is_file():
            with contextlib.suppress(OSError):
                path.unlink()


def _record_path(out: Path, folder: str) -> Path:
    return out / STATE_FOLDER / f"{folder}.json"


def read_record(out: Path, folder: str) -> StageRecord | None:
    """The record of a stage's folder; None when there is none or it is damaged, which only means to do it again."""
    try:
        with _record_path(out, folder).open("rb") as file:
            return StageRecord.model_validate_json(file.read(MAX_RECORD_BYTES), strict=True)
    except (OSError, ValidationError):
        return None


def write_record(out: Path, folder: str, record: StageRecord) -> None:
    """Store a record, in one step."""
    write_bytes(_record_path(out, folder), (record.model_dump_json(indent=2) + "\n").encode())
