"""A data set over a sequence of values, with its labels held in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from compress.data.base import Kind, Sample


def content_bytes(value: Image.Image | str) -> bytes:
    """Bytes that identify a value: colour mode, size and pixels of an image, the UTF-8 form of a text."""
    if isinstance(value, str):
        return value.encode()
    return _pixel_bytes(value.mode, value.width, value.height, value.tobytes())


def _pixel_bytes(mode: str, width: int, height: int, pixels: bytes) -> bytes:
    return f"{mode} {width} {height}\n".encode() + pixels


class PixelArray(Sequence[Image.Image]):
    """Grey images held as one array ``(N, height, width)`` of uint8; each becomes a PIL image when it is read."""

    def __init__(self, pixels: np.ndarray) -> None:
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self._pixels)

    def __getitem__(self, index: Any) -> Any:
        return Image.fromarray(self._pixels[index])

    def content(self, index: int) -> bytes:
        """``content_bytes`` of one image, without making it."""
        pixels = self._pixels[index]
        return _pixel_bytes("L", pixels.shape[1], pixels.shape[0], pixels.tobytes())


class SequenceDataset:
    """A data set whose values are any sequence: a list of texts, image files that are opened when read.

    Args:
        values: PIL images, or texts. A lazy sequence is indexed once per sample that is read.
        kind: ``"image"`` or ``"text"``.
        class_names: names of the classes, distinct; None for unlabelled data.
        labels: position of each sample's class in ``class_names``; None exactly when ``class_names`` is.
        reference: how messages name the data.
        ids: name of each sample; by default its position.
        content: bytes that identify sample i in the fingerprint; by default ``content_bytes`` of its value.

    Raises:
        ValueError: the lengths of values, labels and ids differ, or only one of names and labels is given.
    """

    def __init__(
        self,
        values: Sequence[Any],
        kind: Kind,
        *,
        class_names: Sequence[str] | None = None,
        labels: Sequence[int] | None = None,
        reference: str = "data",
        ids: Sequence[str] | None = None,
        content: Callable[[int], bytes] | None = None,
    ) -> None:
        if (class_names is None) != (labels is None):
            raise ValueError("class_names and labels are given together or not at all")
        for name, column in (("labels", labels), ("ids", ids)):
            if column is not None and len(column) != len(values):
                raise ValueError(f"{len(column)} {name} for {len(values)} values")
        self.reference = reference
        self.kind: Kind = kind
        self.class_names = None if class_names is None else tuple(class_names)
        self.labels = None if labels is None else [int(label) for label in labels]
        self._values, self._ids, self._content = values, ids, content

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> Sample:
        label = None if self.labels is None else self.labels[index]
        return Sample(self._values[index], label, str(index) if self._ids is None else self._ids[index])

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of kind, class names, and of each sample's label and content; one sample in memory at a time."""
        digest = hashlib.sha256(json.dumps([self.kind, self.class_names]).encode())
        for index in range(len(self)):
            content = self._content_of(index)
            label = "" if self.labels is None else str(self.labels[index])
            # The length keeps the boundary: "ab" + "c" and "a" + "bc" are different data.
            digest.update(f"\n{label} {len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()

    def _content_of(self, index: int) -> bytes:
        if self._content is not None:
            return self._content(index)
        if isinstance(self._values, PixelArray):
            return self._values.content(index)
        return content_bytes(self._values[index])
