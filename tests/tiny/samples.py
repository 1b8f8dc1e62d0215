"""Small data sets that fit the tiny models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image

from compress.data.sequence import SequenceDataset
from compress.transformer.model import Transformer

VALUES = ("a good film", "the film was very bad", "good", "very very good", "bad films", "the a was", "a film the film")


def samples(model: Transformer, count: int, *, seed: int = 0, labels: Sequence[int] | None = None) -> SequenceDataset:
    """Random images or texts that ``model`` reads, of one class after the other unless ``labels`` say otherwise."""
    spec = model.config.preprocessing
    numbers = [index % len(model.labels) for index in range(count)] if labels is None else list(labels)
    if spec.kind == "text":
        texts = [f"{VALUES[(seed + index) % len(VALUES)]} {VALUES[index * 3 % len(VALUES)]}" for index in range(count)]
        return SequenceDataset(texts, "text", class_names=model.labels, labels=numbers)
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (count, *spec.size, 3), generator=generator, dtype=torch.uint8).numpy()
    images = [Image.fromarray(own).convert("L" if spec.channels == 1 else "RGB") for own in pixels]
    return SequenceDataset(images, "image", class_names=model.labels, labels=numbers)


def unlabelled(data: SequenceDataset) -> SequenceDataset:
    """The same values without classes."""
    return SequenceDataset([data[index].value for index in range(len(data))], data.kind)
