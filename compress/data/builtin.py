"""Data that come with scikit-learn and need no download."""

from __future__ import annotations

from typing import cast

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from sklearn.model_selection import train_test_split

from compress.data.base import Dataset
from compress.data.reference import ColumnChoice, Reference
from compress.data.sequence import PixelArray, SequenceDataset
from compress.errors import DataError
from compress.registry import nearest

DIGITS_SPLIT_SIZES = {"train": 1097, "calibration": 200, "test": 500}
PATCH_EDGE = 32


def open_builtin(reference: Reference, columns: ColumnChoice) -> Dataset:
    """Open ``builtin:digits#SPLIT`` or ``builtin:photos``; raises ``DataError`` for another name or split."""
    if reference.target == "digits":
        if reference.split not in DIGITS_SPLIT_SIZES:
            raise DataError(
                f"the digits have no split {reference.split!r}" if reference.split else "a split must be named",
                where=reference.text,
                fix=f"use {' or '.join(f'builtin:digits#{split}' for split in DIGITS_SPLIT_SIZES)}",
            )
        return digits(reference.split)
    if reference.target == "photos":
        if reference.split is not None:
            raise DataError("the photos have no splits", where=reference.text, fix="use builtin:photos")
        return photos()
    raise DataError(
        f"there is no built-in data set {reference.target!r}",
        where=reference.text,
        fix=nearest(reference.target, ("digits", "photos")),
    )


def digits(split: str) -> SequenceDataset:
    """One split of the 1,797 handwritten digits of ``sklearn.datasets.load_digits``, grey, 8 x 8 pixels.

    Values 0..16 become 0..255, rounded. The split is stratified by class and fixed (seed 0): 1,097 images to train on,
    200 for calibration, 500 for testing; within a split the images keep the order of scikit-learn. A sample's id is its
    position in scikit-learn's set.

    Raises:
        KeyError: ``split`` is none of train, calibration, test.
    """
    images, classes = cast("tuple[np.ndarray, np.ndarray]", load_digits(return_X_y=True))
    indices = _digits_split(classes)[split]
    pixels = np.round(images * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8)
    return SequenceDataset(
        PixelArray(pixels[indices]),
        "image",
        class_names=[str(digit) for digit in range(10)],
        labels=classes[indices].tolist(),
        reference=f"builtin:digits#{split}",
        ids=[str(index) for index in indices],
    )


def _digits_split(classes: np.ndarray) -> dict[str, np.ndarray]:
    """Positions of each split, ascending."""
    everything = np.arange(len(classes))
    rest, test = train_test_split(everything, test_size=DIGITS_SPLIT_SIZES["test"], stratify=classes, random_state=0)
    train, calibration = train_test_split(
        rest, test_size=DIGITS_SPLIT_SIZES["calibration"], stratify=classes[rest], random_state=0
    )
    return {"train": np.sort(train), "calibration": np.sort(calibration), "test": np.sort(test)}


def photos() -> SequenceDataset:
    """Unlabelled patches of the two photographs of ``sklearn.datasets.load_sample_images``, grey, 8 x 8 pixels.

    Each photograph (427 x 640 pixels) is cut into the 13 x 20 whole squares of 32 pixels that fit, and every square is
    averaged down to 8 x 8: 520 patches in reading order, the out-of-distribution set for the digits. A sample's id is
    ``china-ROW-COLUMN`` or ``flower-ROW-COLUMN``.
    """
    patches, ids = [], []
    for name, photo in zip(("china", "flower"), load_sample_images().images, strict=True):
        grey = Image.fromarray(photo).convert("L")
        for row in range(grey.height // PATCH_EDGE):
            for column in range(grey.width // PATCH_EDGE):
                left, top = column * PATCH_EDGE, row * PATCH_EDGE
                square = grey.crop((left, top, left + PATCH_EDGE, top + PATCH_EDGE))
                patches.append(np.asarray(square.resize((8, 8), Image.Resampling.BOX)))
                ids.append(f"{name}-{row}-{column}")
    return SequenceDataset(PixelArray(np.stack(patches)), "image", reference="builtin:photos", ids=ids)
