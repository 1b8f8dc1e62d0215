"""Chosen samples of a data set, in a chosen order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compress.data.base import Dataset, Kind, Sample


class Subset:
    """The samples ``indices`` of ``dataset``; see ``take``."""

    def __init__(self, dataset: Dataset, indices: Sequence[int], reference: str) -> None:
        self._dataset, self._indices = dataset, indices
        self.reference = reference
        self.kind: Kind = dataset.kind
        self.class_names = dataset.class_names
        self.labels = None if dataset.labels is None else [dataset.labels[index] for index in indices]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Sample:
        return self._dataset[self._indices[index]]

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the whole data set's fingerprint and the indices."""
        return hashlib.sha256(json.dumps([self._dataset.fingerprint, list(self._indices)]).encode()).hexdigest()


def take(dataset: Dataset, indices: Sequence[int], *, reference: str | None = None) -> Dataset:
    """A view of the samples ``indices``, in that order; an index may repeat (a bootstrap).

    Args:
        dataset: the data.
        indices: positions.
        reference: how messages name the view; by default as the data.

    Raises:
        IndexError: an index is outside ``0 .. len(dataset) - 1``.
    """
    return Subset(dataset, checked_indices(indices, len(dataset)), reference or dataset.reference)


def checked_indices(indices: Sequence[int], size: int) -> list[int]:
    """``indices`` as a list of int; raises ``IndexError`` when one is outside ``0 .. size - 1``."""
    chosen = [int(index) for index in indices]
    for index in chosen:
        if not 0 <= index < size:
            raise IndexError(f"index {index} is outside 0..{size - 1}")
    return chosen


def even_places(size: int, most: int) -> list[int]:
    """At most ``most`` of ``size`` places, at even steps."""
    step = max(1, -(-size // most))
    return list(range(0, size, step))
