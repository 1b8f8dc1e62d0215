"""A folder of class folders, or of images without classes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from compress.data.base import Dataset
from compress.data.label_cells import sorted_class_names
from compress.data.reference import TABLE_SUFFIXES, ColumnChoice, Reference
from compress.data.sequence import SequenceDataset
from compress.errors import DataError, first_line

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLIT_NAMES = frozenset({"train", "training", "test", "testing", "val", "valid", "validation", "calibration", "dev"})
MAX_PIXELS = 2**26
"""Largest image: 67 million pixels, up to 540 MB while it is read (4 bytes a pixel, twice).

A file of a few kilobytes can declare more than a machine holds.
"""
# What Pillow's decoders raise on damaged files.
UNREADABLE = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError, SyntaxError,
              TypeError, ValueError, struct.error, zlib.error)  # fmt: skip
# Pillow clips these to 0..255 when it converts them, so that a 16-bit image becomes white.
DEEP_MODES = ("I", "F")


def open_folder(reference: Reference, columns: ColumnChoice) -> Dataset:
    """Open ``CLASS/…/image.png`` files as labelled data, or a folder of images as unlabelled data.

    Classes are the sub-folders' names, sorted (numerically when all are integers). Images are found by suffix at any
    depth below a class folder and sorted by path; other files, and names that begin with a dot, are left out. A
    sample's id is its path relative to the folder, with slashes. In the fingerprint an image counts by the bytes of
    its file.

    Raises:
        DataError: no images; images beside class folders; a class folder without images; the sub-folders are splits.
    """
    root = reference.path
    loose = [path for path in _visible(root) if path.is_file() and _is_image(path)]
    folders = [path for path in _visible(root) if path.is_dir()]
    if folders and not loose and all(folder.name.lower() in SPLIT_NAMES for folder in folders):
        names = ", ".join(f"#{folder.name}" for folder in folders)
        raise DataError("the folder holds splits, not classes", where=reference.text, fix=f"add one of {names}")
    by_class = {folder.name: _images_below(folder) for folder in folders}
    if loose and any(by_class.values()):
        raise DataError(
            f"images lie beside class folders, such as {loose[0].name!r}",
            where=reference.text,
            fix="move every image into the folder of its class",
        )
    if loose:
        return _dataset(reference, loose, None, None)
    for name, images in by_class.items():
        if not images and any(by_class.values()):
            raise DataError(
                f"the class folder {name!r} holds no image ({', '.join(IMAGE_SUFFIXES)})",
                where=reference.text,
                fix="add its images, or remove the folder",
            )
    if not by_class or not any(by_class.values()):
        raise _nothing_found(reference)
    class_names = sorted_class_names(by_class)
    paths = [path for name in class_names for path in by_class[name]]
    labels = [number for number, name in enumerate(class_names) for _ in by_class[name]]
    return _dataset(reference, paths, class_names, labels)


class ImageFiles(Sequence[Image.Image]):
    """Image files, each decoded when it is read; raises ``DataError`` naming the file when that fails."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: Any) -> Any:
        return read_image(self._paths[index])

    def content(self, index: int) -> bytes:
        """The bytes of file ``index``."""
        try:
            return self._paths[index].read_bytes()
        except OSError as error:
            raise _unreadable(self._paths[index], error) from None


def read_image(path: Path) -> Image.Image:
    """Decode an image file: the first frame, in the colour mode and orientation of the stored pixels.

    Raises:
        DataError: the file is no image, is damaged, or has more than 8 bits per channel.
    """
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise DataError(
                    f"the image has {image.width} x {image.height} pixels, more than the {MAX_PIXELS} that are read",
                    where=str(path),
                    fix="make it smaller, or remove the file",
                )
            image.load()
            if image.mode.startswith(DEEP_MODES):
                raise DataError(
                    f"images of mode {image.mode!r} (more than 8 bits per channel) are not read",
                    where=str(path),
                    fix="convert it to 8 bits per channel",
                )
            return image.copy()
    except (*UNREADABLE, Image.DecompressionBombError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: BaseException) -> DataError:
    return DataError(
        f"the image cannot be read ({first_line(error)})", where=str(path), fix="replace or remove the file"
    )


def _dataset(
    reference: Reference, paths: list[Path], class_names: tuple[str, ...] | None, labels: list[int] | None
) -> Dataset:
    files = ImageFiles(paths)
    return SequenceDataset(
        files,
        "image",
        class_names=class_names,
        labels=labels,
        reference=reference.text,
        ids=[path.relative_to(reference.path).as_posix() for path in paths],
        content=files.content,
    )


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES


def _images_below(folder: Path) -> list[Path]:
    def hidden(path: Path) -> bool:
        return any(part.startswith(".") for part in path.relative_to(folder).parts)

    found = (path for path in folder.rglob("*") if _is_image(path) and not hidden(path) and path.is_file())
    return sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def _nothing_found(reference: Reference) -> DataError:
    tables = [path.name for path in _visible(reference.path) if path.suffix.lower() in TABLE_SUFFIXES]
    if tables:
        return DataError(
            "the folder holds tables, not images", where=reference.text, fix=f"name one: {', '.join(tables)}"
        )
    return DataError(
        f"the folder holds no image ({', '.join(IMAGE_SUFFIXES)})",
        where=reference.text,
        fix="put each image into a folder named after its class",
    )
