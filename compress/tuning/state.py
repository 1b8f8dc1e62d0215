"""The resumable state of a run: a hidden folder beside the output, gone when the output is complete."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from compress.artifact.claim import claimed
from compress.artifact.durable import read_failure, write_bytes
from compress.artifact.folder import new_folder, verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.distributed import Processes
from compress.errors import ArtifactError
from compress.options import Options

log = logging.getLogger(__name__)
PROGRESS = "progress.json"
STEP_NAME = re.compile(r"step-\d{8}")


class Progress(Options):
    """Where training stands, beside the weights and the optimizer's moments."""

    step: int = Field(0, ge=0, description="Steps that are done.")
    evaluated: int = Field(-1, ge=-1, description="The last step after which the validation set was evaluated.")
    first: float | None = Field(None, description="The metric before training.")
    best: float | None = Field(None, description="The best value of the metric after any training.")
    best_step: int | None = Field(None, ge=0, description="The step with the best value.")
    without_gain: int = Field(0, ge=0, description="Evaluations since then.")


def identity(**parts: Any) -> str:
    """A short hash of everything that the result depends on: two calls of one identity do the same work."""
    content = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def state_folder(out: Path, run: str) -> Path:
    """Where the state of run ``run`` (see ``identity``) lies. Other runs to the same output keep theirs apart."""
    return out.with_name(f".{out.name}.tune-{run}")


@contextlib.contextmanager
def held_state(out: Path, run: str, team: Processes) -> Iterator[Path]:
    """The folder of a run's state, held against a second process that would write there.

    On leaving, a folder from which nothing could be resumed is removed.

    Raises:
        ArtifactError: another process is at it.
    """
    folder = state_folder(out, run)
    with contextlib.ExitStack() as stack:
        team.on_main(lambda: stack.enter_context(claimed(folder / "run")))
        try:
            yield folder
        finally:
            if team.is_main and not any(folder.rglob(MANIFEST_NAME)):
                shutil.rmtree(folder, ignore_errors=True)


def remove_states(out: Path) -> None:
    """Remove the states of all runs to ``out``, which is complete."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}.tune-*"):
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            log.warning("%s is left over and could not be removed; nothing needs it, delete it", folder)


def clear_broken(folder: Path) -> None:
    """Remove what a removal that was killed or refused has left of an artifact within a state."""
    if not (folder / MANIFEST_NAME).is_file():
        shutil.rmtree(folder, ignore_errors=True)


class CheckpointStore:
    """The checkpoints of one training in ``folder``; at any moment at least one that was complete stays complete.

    Each is written whole or not at all, under a name of its own; older ones are removed afterwards.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, progress: Progress, write: Callable[[Path], None]) -> None:
        """Write a checkpoint; ``write`` fills the folder that it gets.

        Raises:
            ArtifactError: the disk refuses it.
        """
        target = self.folder / f"step-{progress.step:08d}"
        older = [path for path in self._all() if path != target]
        clear_broken(target)
        with new_folder(target, kind="checkpoint", stage="tune", overwrite=True) as partial:
            write(partial)
            write_bytes(partial / PROGRESS, progress.model_dump_json().encode())
        for path in older:
            shutil.rmtree(path, ignore_errors=True)

    def newest(self) -> tuple[Path, Progress] | None:
        """The newest complete checkpoint and where it stands; damaged ones are passed over."""
        for path in reversed(self._all()):
            try:
                verify_folder(path, expect_kind="checkpoint")
                return path, Progress.model_validate_json((path / PROGRESS).read_bytes())
            except (ArtifactError, OSError, ValidationError) as error:
                log.warning("%s is passed over (%s)", path, error)
        return None

    def _all(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        try:
            return sorted(path for path in self.folder.iterdir() if STEP_NAME.fullmatch(path.name))
        except OSError as error:
            raise read_failure(error, self.folder) from error
