"""An artifact folder appears complete, by one rename, or not at all; and it is checked in full before it is used.

Files that the manifest does not list (an editor's backup, ``.DS_Store``, an evaluation's JSON, a nested output) are
tolerated: readers open listed files only, so they change nothing. A listed file that was edited, the README included,
is a damaged file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from compress.artifact.claim import claimed, retired_folder
from compress.artifact.durable import read_failure, sync_folder, write_bytes, write_failure
from compress.artifact.manifest import MANIFEST_NAME, FileRecord, Kind, Manifest, read_manifest
from compress.errors import ArtifactError
from compress.home import expanded

CHUNK_BYTES = 2**20

# By these --overwrite knows a folder as ours; it deletes no other.
_OWN_FILES = (MANIFEST_NAME, "provenance.json")

_KIND_WORDS: dict[Kind, str] = {
    "model": "one model",
    "members": "a set of pruned members",
    "predictions": "predictions of an evaluation",
    "checkpoint": "the state of a training",
}
_KIND_CURES: dict[Kind, str] = {
    "model": "give one model, such as a member of the set or what `compress fuse` wrote",
    "members": "give the folder that `compress prune` wrote",
    "predictions": "give the folder that `compress eval` wrote",
    "checkpoint": "repeat the `compress tune` that was interrupted",
}


def check_target(
    target: Path, *, overwrite: bool = False, inputs: Iterable[object] = (), outside: Iterable[Path] = ()
) -> None:
    """Refuse a place where no artifact may be put, without touching it.

    Args:
        target: the place.
        overwrite: whether an artifact that is there may be replaced, with everything else in its folder.
        inputs: what the artifact is made from; those that are no paths are passed over.
        outside: folders in which it may not lie, such as those of images, where it would be taken for a class.

    Raises:
        ArtifactError: it is a file, a mount point, the working folder, one of the inputs or around or inside of one,
            or a folder with content that ``overwrite`` does not cover: without ``overwrite`` any, with it one that is
            no artifact, or that holds another one.
    """
    real = Path(os.path.realpath(target))
    for given in inputs:
        if isinstance(given, str | os.PathLike):
            _check_apart(target, real, Path(os.path.realpath(expanded(given))))
    for folder in outside:
        if Path(os.path.realpath(folder)) in (real, *real.parents):
            raise ArtifactError(
                f"lies in the data {folder}, of which it would become a part",
                where=str(target),
                fix="choose a folder outside of the data",
            )
    try:
        if not os.path.lexists(real):
            return
        if not real.is_dir():
            raise ArtifactError("is a file", where=str(target), fix="choose a folder")
        if os.path.ismount(real) or real == Path.cwd():
            what = "is a mount point or the working folder, which cannot be replaced"
            raise ArtifactError(what, where=str(target), fix="choose a folder in it")
        content = sorted(entry.name for entry in real.iterdir())
    except OSError as error:
        raise read_failure(error, target) from error
    if content and not overwrite:
        raise ArtifactError("is not empty", where=str(target), fix="choose another folder or pass --overwrite")
    if content and not any(name in content for name in _OWN_FILES):
        raise ArtifactError(
            f"is no artifact (it holds {content[0]!r}), so it is not overwritten",
            where=str(target),
            fix="delete it yourself or choose another folder",
        )
    for name in content:
        if (real / name / MANIFEST_NAME).is_file() and not _is_part(name, real):
            raise ArtifactError(
                f"holds another artifact, {name!r}, which would be lost",
                where=str(target),
                fix="move it away or choose another folder",
            )


def _check_apart(target: Path, real: Path, given: Path) -> None:
    """Refuse an output that would destroy the input it is made from."""
    if real == given:
        where = "is"
    elif real in given.parents and given.exists():
        where = "holds"
    elif given in real.parents and _is_part(real.relative_to(given).parts[0], given):
        where = "is a part of"
    else:
        return
    raise ArtifactError(f"{where} the input {given}", where=str(target), fix="choose another folder for the output")


def _is_part(name: str, folder: Path) -> bool:
    """Whether an artifact lists a file or a member of this name; what else lies in its folder is not its own."""
    if not (folder / MANIFEST_NAME).is_file():
        return False
    manifest = read_manifest(folder)
    return name in {Path(listed).parts[0] for listed in (*manifest.files, *manifest.members)}


@contextlib.contextmanager
def new_folder(
    target: str | os.PathLike[str], *, kind: Kind, stage: str, overwrite: bool = False, members: Sequence[str] = ()
) -> Iterator[Path]:
    """Fill the folder that this yields; when the block ends well, it becomes ``target``, complete and synced.

    The folder is a hidden sibling, so the last step is one rename. When the block fails, or is interrupted, the sibling
    is removed and ``target`` is as before; a killed process leaves the sibling, which the next save to ``target``
    removes. Members are written with ``new_folder`` into the yielded folder before the block ends.

    Overwriting renames the old artifact away, the new one in, and deletes the old. A kill between the two renames
    leaves nothing under ``target``; the next save there puts the old artifact back.

    Args:
        target: the folder to create; missing parents are created.
        kind: what the artifact is.
        stage: the name of the stage that writes it, for messages when it is found damaged.
        overwrite: whether an artifact that is there may be replaced.
        members: names of the member folders, for ``kind="members"``.

    Raises:
        ArtifactError: before the block when ``target`` cannot be written there or another process is writing it; after
            it when the disk refuses, or ``target`` has appeared meanwhile.
        ValueError: the members or the stage's name are not what the manifest allows.
    """
    check_target(Path(target), overwrite=overwrite)
    final = Path(os.path.realpath(target))
    with claimed(final) as partial:
        check_target(Path(target), overwrite=overwrite)  # clearing up may have put an artifact back
        try:
            yield partial
        except OSError as error:
            if _concerns(error, partial):
                raise write_failure(error, final) from error
            raise
        try:
            _complete(partial, kind=kind, stage=stage, members=tuple(members))
            _publish(partial, final, overwrite=overwrite)
        except OSError as error:
            raise write_failure(error, final) from error


def verify_folder(path: str | os.PathLike[str], *, expect_kind: Kind | None = None) -> Manifest:
    """Check every listed file's size, then its hash, and the members of a set likewise.

    Returns:
        The manifest; its ``digest`` is the artifact's hash.

    Raises:
        ArtifactError: the folder is incomplete or damaged, or not of ``expect_kind``; names the file and the stage that
            has to run again.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if expect_kind is not None and manifest.kind != expect_kind:
        raise ArtifactError(
            f"holds {_KIND_WORDS[manifest.kind]}, not {_KIND_WORDS[expect_kind]}",
            where=str(folder),
            fix=_KIND_CURES[expect_kind],
        )
    for name, record in manifest.files.items():
        _check_size(folder, name, record, manifest.stage)
    for name, record in manifest.files.items():
        _check_hash(folder, name, record, manifest.stage)
    for member in manifest.members:
        verify_folder(folder / member, expect_kind="model")
    return manifest


def verify_file(path: Path) -> None:
    """Check a file against the manifest beside it, if there is one that lists it.

    Raises:
        ArtifactError: the file is not what the manifest says.
    """
    if not (path.parent / MANIFEST_NAME).is_file():
        return
    manifest = read_manifest(path.parent)
    if path.name in manifest.files:
        _check_size(path.parent, path.name, manifest.files[path.name], manifest.stage)
        _check_hash(path.parent, path.name, manifest.files[path.name], manifest.stage)


def _complete(partial: Path, *, kind: Kind, stage: str, members: tuple[str, ...]) -> None:
    """Sync every file and folder, then write the manifest."""
    files: dict[str, FileRecord] = {}
    for member in members:
        read_manifest(partial / member)
        path = partial / member / MANIFEST_NAME
        files[f"{member}/{MANIFEST_NAME}"] = _record(path)
    for path, record in _synced_files(partial, skip=members):  # the members' own saves have synced them
        files[path.relative_to(partial).as_posix()] = record
    manifest = Manifest(kind=kind, stage=stage, files=files, members=members)
    write_bytes(partial / MANIFEST_NAME, manifest.to_json())
    sync_folder(partial)


def _publish(partial: Path, target: Path, *, overwrite: bool) -> None:
    """Give the finished folder its name."""
    check_target(target, overwrite=overwrite)
    retired = None
    if overwrite and target.is_dir() and any(target.iterdir()):
        retired = retired_folder(target)
        target.rename(retired)
    try:
        partial.rename(target)
    except OSError as error:
        if retired is not None:
            retired.rename(target)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ArtifactError(
                "was written by another process meanwhile", where=str(target), fix="choose another folder"
            ) from error
        raise
    sync_folder(target.parent)
    if retired is not None:
        shutil.rmtree(retired, ignore_errors=True)


def _concerns(error: OSError, partial: Path) -> bool:
    """Whether an error of the block is about the artifact's disk; others pass through unchanged."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS) or isinstance(error, shutil.Error):
        return True
    named = (error.filename, error.filename2)
    return any(isinstance(name, str | os.PathLike) and Path(name).is_relative_to(partial) for name in named)


def _check_size(folder: Path, name: str, record: FileRecord, stage: str) -> None:
    """The file and the folders on the way to it are real (no links), and the size is right."""
    path = folder
    try:
        *parents, last = name.split("/")
        for part in parents:
            path = path / part
            if not stat.S_ISDIR(path.lstat().st_mode):
                raise _damaged(path, "is not a folder", stage)
        path = path / last
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise _damaged(path, "is missing", stage) from None
    except OSError as error:
        raise read_failure(error, path) from error
    if not stat.S_ISREG(status.st_mode):
        raise _damaged(path, "is not a regular file", stage)
    if status.st_size != record.bytes:
        raise _damaged(path, f"has {status.st_size} bytes instead of {record.bytes}", stage)


def _check_hash(folder: Path, name: str, record: FileRecord, stage: str) -> None:
    if hash_file(folder / name) != record.sha256:
        raise _damaged(folder / name, "was changed or damaged since it was written", stage)


def _synced_files(folder: Path, skip: Sequence[str] = ()) -> Iterator[tuple[Path, FileRecord]]:
    """Sync what lies in a folder, then the folder; ``skip`` names folders directly in it that are left out."""
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            if path.name not in skip:
                yield from _synced_files(path)
        elif stat.S_ISREG(mode):
            yield path, _record(path)
        else:
            raise ValueError(f"{path} is neither a file nor a folder")
    sync_folder(folder)


def _record(path: Path) -> FileRecord:
    """Sync a file that was just written and take down what it is."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return FileRecord(sha256=_sha256(file), bytes=file.tell())


def hash_file(path: Path) -> str:
    """sha256 (hexadecimal) of a file's content; raises ``ArtifactError`` when it cannot be read."""
    try:
        with path.open("rb") as file:
            return _sha256(file)
    except OSError as error:
        raise read_failure(error, path) from error


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _damaged(path: Path, what: str, stage: str) -> ArtifactError:
    return ArtifactError(what, where=str(path), fix=f"run the stage {stage!r} that wrote it again")
