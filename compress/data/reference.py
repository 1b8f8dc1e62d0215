"""The grammar of data references."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from compress.errors import DataError
from compress.home import expanded
from compress.registry import nearest

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
IDX_NAME = re.compile(r"idx\d-ubyte(\.gz)?$")
BRACKETS = re.compile(r"\[[^\[\]/]*\]$")
ROWS = re.compile(r"\[(-?\d*):(-?\d*)(?::(\d*))?\]$")
IDX_IMAGES_NAME = re.compile(r"images[-.]idx3-ubyte(\.gz)?$")

ReferenceKind = Literal["builtin", "folder", "hf", "idx", "table"]


@dataclass(frozen=True)
class ColumnChoice:
    """The columns of a table that the user named; None where they are to be guessed."""

    text: str | None = None
    label: str | None = None

    @property
    def given(self) -> bool:
        """Whether the user named any."""
        return self.text is not None or self.label is not None


@dataclass(frozen=True)
class Reference:
    """A parsed data reference.

    Args:
        text: as the user wrote it.
        kind: the opener's name.
        target: a path, the name of built-in data, or the id of hub data.
        split: what follows ``#``; None when the split was part of the path or there is none.
        rows: which samples, as a Python slice; None for all.
    """

    text: str
    kind: ReferenceKind
    target: str
    split: str | None = None
    rows: slice | None = None

    @property
    def path(self) -> Path:
        """The target of a folder, table or idx reference."""
        return Path(self.target)


def parse_reference(text: str) -> Reference:
    """Find out what ``text`` refers to; see ``open_dataset`` for the grammar.

    Raises:
        DataError: no such path, an unknown prefix, suffix or split, a slice that is none, a step of 0.
    """
    found = ROWS.search(text)
    if expanded(text).exists():
        return _whole(text)
    if found is None:
        _check_brackets(text)
        return _whole(text)
    start, stop, step = (int(number) if number not in ("", None) else None for number in found.groups())
    if step == 0:
        raise DataError("the step between samples is 0", where=text, fix="write [START:STOP:STEP] with a step above 0")
    return replace(_whole(text[: found.start()]), text=text, rows=slice(start, stop, step))


def _check_brackets(text: str) -> None:
    """Raise ``DataError`` when brackets at the end were meant as a slice; paths may end in others."""
    found = BRACKETS.search(text)
    if found and (":" in found[0] or text.startswith(("builtin:", "hf:"))):
        raise DataError(f"{found[0]} is no slice", where=text, fix="write [START:STOP] or [START:STOP:STEP]")


def image_folders(*given: object) -> list[Path]:
    """The folders of images among references and data sets, in which nothing else may be put."""
    texts = (one if isinstance(one, str) else getattr(one, "reference", "") for one in given)
    found = []
    for text in filter(None, texts):
        with contextlib.suppress(DataError):  # whoever opens it says what is wrong
            reference = parse_reference(text)
            if reference.kind == "folder":
                found.append(reference.path)
    return found


def _whole(text: str) -> Reference:
    """A reference to all samples."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("builtin", "hf"):
        target, _, split = rest.partition("#")
        return Reference(text, "builtin" if scheme == "builtin" else "hf", target, split or None)
    whole = expanded(text)
    if text and whole.exists():
        return _existing(text, whole, None)
    before, _, split = text.rpartition("#")
    if before and expanded(before).exists():
        return _existing(text, expanded(before), split)
    if colon and re.fullmatch(r"[A-Za-z_]{2,}", scheme):
        raise DataError(f"unknown prefix {scheme + ':'!r}", where=text, fix=nearest(scheme, ("builtin", "hf")))
    raise DataError("no such file or folder", where=text, fix="check the path, or try builtin:digits#test")


def _existing(text: str, path: Path, split: str | None) -> Reference:
    if path.is_dir():
        return _folder(text, path, split)
    if path.suffix.lower() in TABLE_SUFFIXES:
        kind: ReferenceKind = "table"
    elif IDX_NAME.search(path.name):
        kind = "idx"
    else:
        raise DataError(
            f"files of type {path.suffix or path.name!r} are not read",
            where=text,
            fix=f"use {', '.join(TABLE_SUFFIXES)}, an idx file (…-images-idx3-ubyte[.gz]) or a folder of images",
        )
    if split is not None:
        raise DataError(f"a single file has no split {split!r}", where=text, fix="name the file of that split itself")
    return Reference(text, kind, str(path))


def _folder(text: str, path: Path, split: str | None) -> Reference:
    holds_idx = any(IDX_IMAGES_NAME.search(entry.name) for entry in path.iterdir())
    if split is None:
        return Reference(text, "idx" if holds_idx else "folder", str(path))
    if split and (path / split).is_dir():
        return _folder(text, path / split, None)
    if holds_idx:
        return Reference(text, "idx", str(path), split)
    present = sorted(entry.name for entry in path.iterdir() if entry.is_dir())
    raise DataError(
        f"the folder has no sub-folder {split!r}",
        where=text,
        fix=f"choose one of {', '.join(present[:10])}" if present else "drop the part after '#'",
    )
