"""Small random pictures, for models of 16 x 16 pixels and 3 channels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from compress.data.sequence import SequenceDataset


def pictures(count: int, labels: Sequence[str] | None = None, seed: int = 0) -> SequenceDataset:
    """Noise; the labels go round."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)
    classes = None if labels is None else [index % len(labels) for index in range(count)]
    return SequenceDataset([Image.fromarray(own) for own in pixels], "image", class_names=labels, labels=classes)


def save_pictures(dataset: SequenceDataset, folder: Path) -> Path:
    """The pictures as a folder of class folders, or of images."""
    for row in range(len(dataset)):
        sample = dataset[row]
        within = folder if dataset.class_names is None else folder / dataset.class_names[sample.label or 0]
        within.mkdir(parents=True, exist_ok=True)
        sample.value.save(within / f"{row:03d}.png")  # type: ignore[union-attr]
    return folder
