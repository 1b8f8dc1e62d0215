"""From a data set to batches that are ready for a model, the same with any number of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader

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
    dataset: Dataset,
    preprocess: Preprocess,
    *,
    batch_size: int,
    indices: Sequence[int] | None = None,
    shuffle_seed: int | None = None,
    workers: int = 0,
) -> Iterator[Batch]:
    """Batches in the order of the data set, of ``indices``, or of a seeded permutation; the last may be smaller.

    Neither the order nor the content depends on ``workers``, and the global random state is not touched. There are
    ``ceil(n / batch_size)`` batches.

    Args:
        dataset: the samples.
        preprocess: from the values of B samples to the model's inputs; runs in the workers.
        batch_size: samples per batch, at least 1.
        indices: positions to use, in this order; a position may repeat (a bootstrap).
        shuffle_seed: seed of the permutation; None keeps the order.
        workers: processes that decode and preprocess beside this one.

    Raises:
        DataError: there is no sample, or a label is outside the classes (both before the first batch); a sample cannot
            be read (when its batch is due).
        IndexError: an index is outside the data set.
    """
    order = list(range(len(dataset))) if indices is None else checked_indices(indices, len(dataset))
    if not order:
        raise DataError("there are no samples", where=dataset.reference, fix="choose data with at least one sample")
    check_labels(dataset)
    if shuffle_seed is not None:
        permutation = torch.randperm(len(order), generator=torch.Generator().manual_seed(shuffle_seed))
        order = [order[position] for position in permutation.tolist()]
    loader: DataLoader[Any] = DataLoader(
        order,  # type: ignore[arg-type]  # any sequence is a map-style data set
        batch_size=batch_size,
        collate_fn=_Assemble(dataset, preprocess),
        num_workers=workers,
        # Without its own generator the loader would draw a number from the global one.
        generator=torch.Generator(),
    )
    return _unwrap(loader)


def _unwrap(loader: DataLoader[Any]) -> Iterator[Batch]:
    for result in loader:
        if isinstance(result, DataError):
            raise result
        yield result


class _Assemble:
    """Reads and preprocesses the samples of one batch, in a worker if there is one."""

    def __init__(self, dataset: Dataset, preprocess: Preprocess) -> None:
        self._dataset, self._preprocess = dataset, preprocess

    def __call__(self, indices: list[int]) -> Batch | DataError:
        try:
            samples = [self._dataset[index] for index in indices]
            inputs = self._preprocess([sample.value for sample in samples])
        except DataError as error:
            # Returned, since a raised one would reach the user as the traceback of a worker.
            return error
        classes = [sample.label for sample in samples if sample.label is not None]
        labels = torch.tensor(classes) if self._dataset.labels is not None else None
        return Batch(inputs, labels, tuple(sample.id for sample in samples), torch.tensor(indices))
