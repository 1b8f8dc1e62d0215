"""From a data set to batches that are ready for a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from compress.data.base import Dataset
from compress.data.labels import check_labels
from compress.data.subset import checked_indices
from compress.errors import DataError

Preprocess = Callable[[list[Any]], Any]


class Batch(NamedTuple):
    """B samples.

    Args:
        inputs: what the preprocessing made of the values: a tensor ``(B, C, H, W)`` or a mapping of tensors ``(B, N)``.
        labels: class numbers ``(B,)``, int64; None for unlabelled data.
        ids: name of each sample.
        indices: position of each sample in the data set ``(B,)``, int64.
    """

    inputs: Any
    labels: torch.Tensor | None
    ids: tuple[str, ...]
    indices: torch.Tensor


def batches(
    dataset: Dataset, preprocess: Preprocess, *, batch_size: int, indices: Sequence[int] | None = None
) -> Iterator[Batch]:
    """Batches in the order of the data set or of ``indices``; ``ceil(n / batch_size)``, the last may be smaller.

    Args:
        dataset: the samples.
        preprocess: from the values of B samples to the model's inputs.
        batch_size: samples per batch, at least 1.
        indices: positions to use, in this order; a position may repeat (a bootstrap).

    Raises:
        DataError: there is no sample, or a label is outside the classes (both before the first batch); a sample cannot
            be read (when its batch is due).
        IndexError: an index is outside the data set.
    """
    order = list(range(len(dataset))) if indices is None else checked_indices(indices, len(dataset))
    if not order:
        raise DataError("there are no samples", where=dataset.reference, fix="choose data with at least one sample")
    check_labels(dataset)
    parts = (order[start : start + batch_size] for start in range(0, len(order), batch_size))
    return (_assembled(dataset, preprocess, part) for part in parts)


def _assembled(dataset: Dataset, preprocess: Preprocess, indices: Sequence[int]) -> Batch:
    """One batch, read and preprocessed."""
    samples = [dataset[index] for index in indices]
    inputs = preprocess([sample.value for sample in samples])
    classes = [sample.label for sample in samples if sample.label is not None]
    labels = torch.tensor(classes) if dataset.labels is not None else None
    return Batch(inputs, labels, tuple(sample.id for sample in samples), torch.tensor(indices))
