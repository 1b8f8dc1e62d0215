"""Images and labels in the idx format of the MNIST database (http://yann.lecun.com/exdb/mnist/, "file formats").

A file is: two zero bytes, the type of the values (8: unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit integer, and the values.
"""

from __future__ import annotations

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np

from compress.data.base import Dataset
from compress.data.label_cells import encode_labels
from compress.data.reference import IDX_IMAGES_NAME, ColumnChoice, Reference
from compress.data.sequence import PixelArray, SequenceDataset
from compress.errors import DataError

UNSIGNED_BYTE = 8
MAX_UNPACKED_BYTES = 2**30
SPLIT_PREFIXES = {"test": ("test", "t10k")}


def open_idx(reference: Reference, columns: ColumnChoice) -> Dataset:
    """Open an image file with the label file beside it, or such a pair in a folder.

    The label file has the image file's name with ``labels`` and ``idx1`` for ``images`` and ``idx3``, gzipped or not;
    without one the data are unlabelled. Class names are the labels as decimal numbers. In a folder, ``#NAME`` picks
    the file ``NAME-images-idx3-ubyte``; ``#test`` also finds ``t10k-images-idx3-ubyte``.

    Raises:
        DataError: no such split, a damaged file, or the numbers of images and labels differ.
    """
    path = _image_file(reference)
    pixels = read_idx(path, dimensions=3)
    labels_path = _labels_file(path)
    ids = [str(index) for index in range(len(pixels))]
    class_names, labels = None, None
    if labels_path is not None:
        cells = read_idx(labels_path, dimensions=1)
        if len(cells) != len(pixels):
            raise DataError(
                f"holds {len(cells)} labels for the {len(pixels)} images of {path.name}",
                where=str(labels_path),
                fix="download the pair again",
            )
        class_names, labels = encode_labels(cells.tolist(), ids, reference.text)
    return SequenceDataset(
        PixelArray(pixels), "image", class_names=class_names, labels=labels, reference=reference.text, ids=ids
    )


def read_idx(path: Path, *, dimensions: int) -> np.ndarray:
    """The array of unsigned bytes in an idx file, gzipped (``.gz``) or not.

    Raises:
        DataError: the magic number is another, or the file is shorter or longer than its header says.
    """
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    try:
        content = _unpacked(path, magic) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"the file is damaged ({error})", where=str(path), fix="download it again") from None
    if content[:4] != magic:
        raise DataError(
            f"the magic number is {content[:4].hex() or 'missing'}, not {magic.hex()}",
            where=str(path),
            fix="use an idx file of unsigned bytes, images with 3 dimensions and labels with 1",
        )
    header = 4 + 4 * dimensions
    shape = [int.from_bytes(content[start : start + 4], "big") for start in range(4, header, 4)]
    if len(content) != header + math.prod(shape):
        raise DataError(
            f"the file is {'longer' if len(content) > header + math.prod(shape) else 'shorter'} than its header says",
            where=str(path),
            fix="download it again",
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _unpacked(path: Path, magic: bytes) -> bytes:
    """The content of a gzipped file, and no more of it than one byte beyond what its header declares."""
    with gzip.open(path) as file:
        head = file.read(4 + 4 * magic[3])
        if not head.startswith(magic):
            return head
        declared = math.prod(int.from_bytes(head[start : start + 4], "big") for start in range(4, len(head), 4))
        if declared > MAX_UNPACKED_BYTES:
            raise DataError(
                f"declares {declared} bytes, more than the {MAX_UNPACKED_BYTES} that are unpacked in memory",
                where=str(path),
                fix="unpack it with gunzip",
            )
        return head + file.read(declared + 1)


def _image_file(reference: Reference) -> Path:
    path = reference.path
    if path.is_file():
        if not IDX_IMAGES_NAME.search(path.name):
            raise DataError("not a file of images", where=reference.text, fix="name the …-images-idx3-ubyte file")
        return path
    found = {file.name: file for file in sorted(path.iterdir()) if IDX_IMAGES_NAME.search(file.name)}
    splits = sorted({_split_of(name) for name in found})
    if reference.split is None:
        raise DataError("a split must be named", where=reference.text, fix=f"add #{' or #'.join(splits)}")
    prefixes = SPLIT_PREFIXES.get(reference.split, (reference.split,))
    # Without .gz sorts first: of a file and its gzipped form the plain one is read.
    for name, file in found.items():
        if _split_of(name) == reference.split or any(name.startswith(f"{prefix}-images") for prefix in prefixes):
            return file
    raise DataError(
        f"the folder has no idx file of the split {reference.split!r}",
        where=reference.text,
        fix=f"use #{' or #'.join(splits)}",
    )


def _split_of(name: str) -> str:
    prefix = re.split(r"-?images[-.]", name)[0]
    return "test" if prefix == "t10k" else prefix


def _labels_file(images: Path) -> Path | None:
    stem = images.name.removesuffix(".gz")
    head, _, tail = stem.rpartition("images")
    plain = head + "labels" + tail.replace("idx3", "idx1")
    for name in (plain, f"{plain}.gz") if images.suffix != ".gz" else (f"{plain}.gz", plain):
        if (images.parent / name).is_file():
            return images.parent / name
    return None
