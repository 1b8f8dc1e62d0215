"""What a sweep remembers: one small file per finished point, so that it can go on after an interruption."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import Field, ValidationError

import compress
from compress.artifact.durable import write_bytes
from compress.options import Options
from compress.sweeping.result import SweepPoint

MAX_RECORD_BYTES = 2**20


class Record(Options):
    """A finished point, or the finished scores, which have none."""

    key: str = Field(description="Hash of everything that the result depends on.")
    point: SweepPoint | None = None


def record_key(**parts: object) -> str:
    """sha256 (hexadecimal) of JSON values and of the package's version."""
    content = {**parts, "version": compress.__version__}
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def read_record(path: Path, key: str) -> Record | None:
    """The record of that key; None when there is none, or an older or damaged one, which only means to do it again."""
    try:
        with path.open("rb") as file:
            record = Record.model_validate_json(file.read(MAX_RECORD_BYTES))
    except (OSError, ValidationError):
        return None
    return record if record.key == key else None


def write_record(path: Path, record: Record) -> None:
    """Store a record, in one step."""
    write_bytes(path, (record.model_dump_json(indent=2) + "\n").encode())
