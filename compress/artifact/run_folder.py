"""The folder of a run or of a sweep: what it remembers lies in ``state``, and one process at a time holds it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from compress.artifact.durable import read_failure, write_failure
from compress.errors import ArtifactError

if sys.platform != "win32":
    import fcntl

STATE_FOLDER = "state"


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
