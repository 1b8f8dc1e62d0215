"""Files that the user names for results: looked at before the work begins, written when it is done."""

from __future__ import annotations

import os
from pathlib import Path

import click

from compress.artifact.durable import write_bytes, write_failure
from compress.errors import UsageError

STDOUT = "-"


def checked_result_file(context: click.Context, parameter: click.Parameter, value: str | Path | None) -> object:
    """A click callback that refuses what could not be written once everything is computed.

    Raises:
        UsageError: the folder is missing or may not be written to, the name is a folder's, or the file belongs to an
            artifact.
    """
    from compress.artifact.manifest import MANIFEST_NAME  # brings pydantic, which --help does without

    if value is None or str(value) == STDOUT:
        return value
    path, option = Path(os.path.realpath(value)), parameter.opts[0]
    if path.is_dir():
        raise UsageError(f"{value} is a folder", where=option, fix="name a file")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", where=option, fix="make it first, or name another file")
    # A file is replaced by one that grows beside it; a pipe or a device is written to.
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise UsageError(f"{value} may not be written", where=option, fix="name a file in a folder of yours")
    if path.exists() and (path.parent / MANIFEST_NAME).is_file():
        raise UsageError(f"{value} is a file of an artifact", where=option, fix="name another file")
    return value


def write_result(path: Path, content: bytes) -> None:
    """Write a result: a file in one step, anything else (a pipe, a device) as it comes; links are followed.

    Raises:
        ArtifactError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_file() or not target.exists():
        write_bytes(target, content)
        return
    try:
        with target.open("wb") as stream:
            stream.write(content)
    except OSError as error:
        raise write_failure(error, path) from error
