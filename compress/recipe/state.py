"""What a run remembers about each stage: ``OUT/state/01-prune.json``, beside the artifact and never inside it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from compress.artifact.durable import write_bytes, write_failure
from compress.errors import ArtifactError
from compress.options import Options

STATE_FOLDER = "state"
MAX_RECORD_BYTES = 64 * 1024


class StageRecord(Options):
    """A finished stage.

    It is written after the artifact's own rename. A kill in between leaves no record, or one with another digest, and
    the stage is done again.
    """

    key: str = Field(description="The stage's key; see compress.recipe.keys.")
    digest: str = Field(description="Hash of the artifact that was written under this key.")


def prepare(out: Path) -> None:
    """Make ``out`` a run's folder.

    Raises:
        ArtifactError: it holds something else, or cannot be written.
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
