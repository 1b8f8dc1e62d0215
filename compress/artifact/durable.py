"""Bytes that reach the disk: a file appears under its name complete and synced, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from compress.errors import ArtifactError

_WRITE_CURES = {
    errno.ENOSPC: "free some space or write to another disk",
    errno.EDQUOT: "free some of your quota or write to another disk",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f) or write to another disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EROFS: "choose a folder on a disk that is not read-only",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "choose a folder whose parents are folders",
    errno.EEXIST: "choose a folder whose parents are folders",
}

# Some file systems (network, FUSE) cannot sync a folder and say so with one of these.
_CANNOT_SYNC_FOLDERS = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def write_failure(error: OSError, path: Path) -> ArtifactError:
    """The user error for a failed write to ``path``: the file, the system's reason and the cure."""
    cure = _WRITE_CURES.get(error.errno or 0, "check the disk and try again")
    return ArtifactError(f"cannot be written ({error.strerror or error})", where=str(path), fix=cure)


def read_failure(error: OSError, path: Path) -> ArtifactError:
    """The user error for a failed read of ``path``."""
    fix = "check that it exists and that you may read it"
    return ArtifactError(f"cannot be read ({error.strerror or error})", where=str(path), fix=fix)


def read_bytes(path: Path, limit: int) -> bytes:
    """A file's content; raises ``ArtifactError`` when it cannot be read or has more than ``limit`` bytes."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= limit:
                return file.read(limit)
    except OSError as error:
        raise read_failure(error, path) from error
    what = f"has {size / 1e6:.1f} MB, more than the {limit / 1e6:.1f} MB that are read of such a file"
    fix = "it is not one that compress wrote; get the artifact again"
    raise ArtifactError(what, where=str(path), fix=fix)


@contextlib.contextmanager
def durable_file(path: Path) -> Iterator[BinaryIO]:
    """Open ``path`` for writing; on success it replaces what was there in one step, on failure nothing changes.

    The bytes go to a hidden sibling, are synced and renamed. The mode follows the umask.

    Raises:
        ArtifactError: the disk refuses the write (full, read-only, not allowed).
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise write_failure(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a whole file as ``durable_file`` does."""
    with durable_file(path) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, where the file system can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC_FOLDERS:
            raise
    finally:
        os.close(descriptor)
