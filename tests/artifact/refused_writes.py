"""A file system that refuses changes, for a process that may be spoiled: the hooks of this module stay.

Python tells its audit hooks about every change before it happens, and a hook that raises prevents it; syncing, which is
not told, is replaced. What C++ and Rust write is not seen; for that a limit on file sizes is the better test.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
ADDING = ("os.mkdir", "os.rename", "os.link", "fsync")
REMOVING = ("os.remove", "os.rmdir")


def refuse_change(folder: Path, number: int | None, error: int) -> Callable[[], int]:
    """Refuse the ``number``-th change within ``folder`` (from 0; None: none) with the system's ``error``.

    A full disk (ENOSPC) refuses what takes room from then on, and lets files be removed. A disk that has become
    read-only (EROFS) refuses every change from then on. A folder without permission (EACCES) refuses the one.

    Returns:
        A function that tells how many changes there were.
    """
    within = f"{os.fspath(folder)}{os.sep}"
    seen = 0

    def change(event: str, path: object) -> None:
        nonlocal seen
        removing = event in REMOVING
        if number is not None and _refuses(seen, number, error, removing=removing):
            seen += 1
            raise OSError(error, os.strerror(error), path if isinstance(path, str) else None)
        seen += 1

    def told(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITING and _is_within(path, within):
                change(event, _text(path))
        elif (event in ADDING or event in REMOVING) and _is_within(arguments[0], within):
            change(event, _text(arguments[0]))

    sync = os.fsync

    def synced(descriptor: int) -> None:
        change("fsync", None)
        sync(descriptor)

    os.fsync = synced
    sys.addaudithook(told)
    return lambda: seen


def _refuses(seen: int, number: int, error: int, *, removing: bool) -> bool:
    if error == errno.ENOSPC:
        return seen >= number and not removing
    return seen >= number if error == errno.EROFS else seen == number


def _text(path: Any) -> str:
    return "" if isinstance(path, int) else os.fsdecode(path)


def _is_within(path: Any, within: str) -> bool:
    """Whether the change is in the folder; a name relative to an open folder is of a tree that is being removed."""
    text = _text(path)
    return f"{text}{os.sep}".startswith(within) or not text.startswith(os.sep)
