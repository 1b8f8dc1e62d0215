"""One writer per target: the hidden sibling folder that a save fills, and the clearing up after writers that died.

The folder ``.NAME.partial`` beside the target ``NAME`` is the claim: creating it is atomic, so a second writer sees it.
Its lock tells a living writer from a dead one, because the system drops a process's locks with the process.
``.NAME.old-TOKEN`` is a replaced artifact on its way out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from compress.artifact.durable import write_failure
from compress.artifact.manifest import MANIFEST_NAME
from compress.errors import ArtifactError

if sys.platform != "win32":
    import fcntl

_TOKEN = r"[0-9a-f]{16}"

# What flock answers where folders cannot be locked: old kernels, Lustre without locks, NFS (needs a writable file).
_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EBADF, errno.EINVAL}


def partial_folder(target: Path) -> Path:
    """Where the artifact grows until it is complete."""
    return target.with_name(f".{target.name}.partial")


def retired_folder(target: Path) -> Path:
    """A fresh name for the artifact that is about to be replaced."""
    return target.with_name(f".{target.name}.old-{secrets.token_hex(8)}")


@contextlib.contextmanager
def claimed(target: Path) -> Iterator[Path]:
    """Create the partial folder of ``target`` and hold it; on leaving, remove it if it is still there.

    What writers that died have left is cleared up first: their partial folders are deleted, and an artifact that was
    taken away but not yet replaced is put back. On a file system without locks a partial folder is never taken for
    dead; the error then says what to delete.

    Raises:
        ArtifactError: another process is writing the target, or its parent folder cannot be written.
    """
    partial = partial_folder(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_failure(error, target.parent) from error
    try:
        lock = _create(partial)
        # Compared on leaving: after the rename, the name may already be another writer's.
        identity = partial.lstat()
    except (FileExistsError, FileNotFoundError, BlockingIOError):
        raise ArtifactError(
            "another process is writing it", where=str(target), fix=f"wait for it; if there is none, delete {partial}"
        ) from None
    except OSError as error:
        raise write_failure(error, target) from error
    try:
        _clear_retired(target)
        yield partial
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(identity, partial.lstat()):
                shutil.rmtree(partial, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _create(partial: Path) -> int | None:
    """Make and lock the partial folder; ``None`` where there are no locks.

    ``FileExistsError``, ``FileNotFoundError`` and ``BlockingIOError`` all mean that another writer was faster.
    """
    if os.path.lexists(partial):
        abandoned = _lock(partial)
        if abandoned is None:
            raise FileExistsError
        try:
            shutil.rmtree(partial)
        finally:
            os.close(abandoned)
    partial.mkdir()
    return _lock(partial)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the descriptor is closed or the process dies; ``None`` where folders cannot be locked."""
    if sys.platform == "win32":
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), folder.lstat()):
            raise BlockingIOError  # the folder was replaced while it was being locked
    except OSError as error:
        os.close(descriptor)
        if error.errno in _NO_LOCKS:
            return None
        raise
    return descriptor


def _clear_retired(target: Path) -> None:
    """Delete replaced artifacts whose successor stands; put one back when a kill came before its successor.

    Best effort: what cannot be cleared today is no obstacle to a save.
    """
    pattern = re.compile(rf"\.{re.escape(target.name)}\.old-{_TOKEN}")
    with contextlib.suppress(OSError):
        for retired in sorted(target.parent.iterdir()):
            if not pattern.fullmatch(retired.name):
                continue
            if not os.path.lexists(target):
                retired.rename(target)
            elif (target / MANIFEST_NAME).is_file():
                shutil.rmtree(retired, ignore_errors=True)
