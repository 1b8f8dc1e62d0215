"""Training batches: the same whatever the number of workers, of processes, and of interruptions before."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from compress.data.base import Dataset
from compress.data.batches import Preprocess
from compress.data.labels import check_labels
from compress.distributed import Processes
from compress.errors import DataError
from compress.tuning.order import Order

Augment = Callable[[Tensor, int, int, slice], Tensor]
"""From inputs ``(b, C, H, W)``, the number of the forward pass, its size over all processes and the rows that these
inputs are of it, to changed inputs."""


class TrainingBatch(NamedTuple):
    """What one process computes in one forward pass.

    Attributes:
        inputs: what the preprocessing made of b samples.
        labels: ``(b,)``.
        weights: ``(b,)``, 1 / (samples of the whole optimizer step); 0 for a sample that only stands in because the
            process has none of its own.
        ids: names of the samples.
        number: number of the forward pass.
        size: samples of the forward pass in all processes.
        rows: which of them these are.
    """

    inputs: Any
    labels: Tensor
    weights: Tensor
    ids: tuple[str, ...]
    number: int
    size: int
    rows: tuple[int, int]


class TrainingBatches(TorchDataset["TrainingBatch | DataError"]):
    """Item k is this process's share of forward pass k.

    Args:
        dataset: labelled samples, their classes numbered as the model's.
        preprocess: from values to inputs.
        order: which samples make which forward pass.
        augment: see ``Augment``; None changes nothing.
        team: the processes that share each forward pass.

    Raises:
        DataError: no samples, or a label that is no class of the model.
    """

    def __init__(
        self, dataset: Dataset, preprocess: Preprocess, order: Order, augment: Augment | None, team: Processes
    ) -> None:
        if len(dataset) == 0:
            raise DataError("there are no samples", where=dataset.reference, fix="choose data with at least one sample")
        check_labels(dataset)
        self._dataset, self._preprocess, self._order = dataset, preprocess, order
        self._augment, self._team = augment, team

    def __getitem__(self, number: int) -> TrainingBatch | DataError:
        indices = self._order.indices(number)
        size = len(indices)
        start, stop = (size * part // self._team.count for part in (self._team.index, self._team.index + 1))
        # A process without a sample runs the first one with weight 0, since all must take part in every pass.
        own = indices[start:stop] or indices[:1]
        try:
            samples = [self._dataset[index] for index in own]
            inputs = self._preprocess([sample.value for sample in samples])
        except DataError as error:
            # Returned, since a raised one would reach the user as the traceback of a worker.
            return error
        rows = (start, stop) if stop > start else (0, 1)
        if self._augment is not None:
            inputs = self._augment(inputs, number, size, slice(*rows))
        weight = 1 / self._order.samples_of_step(number) if stop > start else 0.0
        labels = torch.tensor([sample.label for sample in samples])
        weights = torch.full((len(own),), weight)
        return TrainingBatch(inputs, labels, weights, tuple(sample.id for sample in samples), number, size, rows)

    def between(self, start: int, stop: int, *, workers: int, pin: bool) -> Iterator[TrainingBatch]:
        """The batches ``start .. stop-1``; neither order nor content depends on ``workers``.

        Raises:
            DataError: a sample cannot be read, when its batch is due.
        """
        loader: DataLoader[Any] = DataLoader(
            self,
            batch_size=None,
            sampler=range(start, stop),
            num_workers=workers,
            collate_fn=_unchanged,
            pin_memory=pin,
            worker_init_fn=_ignore_signals,
            generator=torch.Generator(),  # without its own the loader would draw from the global one
        )
        for batch in loader:
            if isinstance(batch, DataError):
                raise batch
            yield batch


def _unchanged(batch: Any) -> Any:
    return batch


def _ignore_signals(worker: int) -> None:
    """An interruption reaches the whole process group; the main process decides when its workers end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
