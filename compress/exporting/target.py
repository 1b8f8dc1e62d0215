"""Where a file may be put."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from compress.artifact.manifest import MANIFEST_NAME, read_manifest
from compress.errors import ArtifactError
from compress.home import expanded


def check_file_target(target: Path, *, overwrite: bool = False, inputs: Iterable[object] = ()) -> None:
    """Refuse a place where no file may be put, without touching it.

    Args:
        target: the place; links are followed.
        overwrite: whether a file that is there may be replaced.
        inputs: what the file is made from; those that are no paths are passed over.

    Raises:
        ArtifactError: a folder, something that is no regular file, a file that ``overwrite`` does not cover, one of the
            inputs, a file of an artifact, or a folder that does not exist or may not be written to.
    """
    real = Path(os.path.realpath(target))
    where = str(target)
    for given in inputs:
        if isinstance(given, str | os.PathLike) and real == Path(os.path.realpath(expanded(given))):
            raise ArtifactError(f"is the input {given}", where=where, fix="choose another name for the output")
    artifact = next((folder for folder in real.parents if (folder / MANIFEST_NAME).is_file()), None)
    if artifact is not None and real.relative_to(artifact).as_posix() in _files_of(artifact):
        raise ArtifactError(f"is a part of the artifact {artifact}", where=where, fix="choose another name")
    if real.is_dir():
        raise ArtifactError("is a folder", where=where, fix="name a file in it")
    if real.exists() and not real.is_file():
        raise ArtifactError("is no regular file", where=where, fix="choose another name")
    if real.exists() and not overwrite:
        raise ArtifactError("exists", where=where, fix="choose another name or pass --overwrite")
    if not real.parent.is_dir():
        raise ArtifactError(f"there is no folder {real.parent}", where=where, fix="make it first")
    if not os.access(real.parent, os.W_OK):
        raise ArtifactError("its folder may not be written to", where=where, fix="choose a folder of yours")


def _files_of(folder: Path) -> set[str]:
    """The names of an artifact's files; none where the manifest is that of another program."""
    try:
        return {MANIFEST_NAME, *read_manifest(folder).files}
    except ArtifactError:
        return set()
