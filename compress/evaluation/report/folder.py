"""The folder of a report: what may be replaced, and in which order files are written.

A report is no artifact: it holds latencies, nothing starts from it, and its reader is a person. So it has no manifest,
and files are replaced one by one, each in one step, ``index.html`` last. The page needs none of the other files, so a
reader sees the old report or the new one, whole, whenever the writing stops. Nothing that is not a report's own is
ever deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from compress.artifact.durable import read_failure, write_bytes, write_failure
from compress.errors import ArtifactError

PAGE = "index.html"
DATA = "report.json"
PICTURES = "pictures"
SCHEMA = "compress/report"


def check_report_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than a report, before anything is computed.

    Raises:
        ArtifactError: it is a file, cannot be read, or has content and no report.
    """
    try:
        if not folder.exists():
            return
        if not folder.is_dir():
            raise ArtifactError("is a file", where=str(folder), fix="choose a folder for the report")
        content = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise read_failure(error, folder) from error
    if content and not _is_report(folder):
        raise ArtifactError(
            f"is not empty and holds no report (it holds {content[0]!r})",
            where=str(folder),
            fix="choose an empty folder for the report",
        )


def write_files(folder: Path, *, pictures: Mapping[str, bytes], data: bytes, page: bytes) -> None:
    """Write a report, in place of an earlier one.

    Args:
        folder: created with its parents when missing.
        pictures: content by file name.
        data: the JSON.
        page: the HTML.

    Raises:
        ArtifactError: see ``check_report_folder``; or the disk refuses.
    """
    check_report_folder(folder)
    inner = folder / PICTURES
    try:
        inner.mkdir(parents=True, exist_ok=True)
        # The JSON first: it marks the folder as a report, so a run that stops half-way can be repeated.
        write_bytes(folder / DATA, data)
        for stale in inner.glob("*.png"):
            if stale.name not in pictures:
                stale.unlink()
    except OSError as error:
        raise write_failure(error, folder) from error
    for name, content in pictures.items():
        write_bytes(inner / name, content)
    write_bytes(folder / PAGE, page)


def _is_report(folder: Path) -> bool:
    path = folder / DATA
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else None
    except OSError as error:
        raise read_failure(error, path) from error
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("schema") == SCHEMA
