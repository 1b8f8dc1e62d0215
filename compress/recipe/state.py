"""What a run remembers about each stage: ``OUT/state/01-prune.json``, beside the artifact and never inside it."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from compress.artifact.durable import write_bytes
from compress.artifact.run_folder import STATE_FOLDER
from compress.options import Options

MAX_RECORD_BYTES = 64 * 1024


class StageRecord(Options):
    """A finished stage.

    It is written after the artifact's own rename. A kill in between leaves no record, or one with another digest, and
    the stage is done again.
    """

    key: str = Field(description="The stage's key; see compress.recipe.keys.")
    digest: str = Field(description="Hash of the artifact that was written under this key.")


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
