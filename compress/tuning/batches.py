"""Training batches: the same whatever the number of workers, of processes, and of interruptions before."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from compress.data.base import Dataset, Sample
from compress.data.labels import check_labels
from compress.distributed import Processes
from compress.errors import DataError
from compress.tuning.order import Order


class Share(NamedTuple):
    """One process's part of a forward pass: what its random draws depend on.

    Attributes:
        number: number of the forward pass.
        size: its samples in all processes.
        start, stop: which of them are this process's.
    """

    number: int
    size: int
    start: int
    stop: int

    @property
    def rows(self) -> slice:
        """Its part of draws for the whole forward pass."""
        return slice(self.start, self.stop)


MakeInputs = Callable[[list[Sample], Share], Any]
"""From b samples and the share that they are to the model's inputs; runs in the data workers."""


class TrainingBatch(NamedTuple):
    """What one process computes in one forward pass.

    Attributes:
        inputs: what ``MakeInputs`` made of b samples.
        labels: ``(b,)``.
        weights: ``(b,)``, 1 / (samples of the whole optimizer step); 0 for a sample that only stands in because the
            process has none of its own.
        ids: names of the samples.
        share: which part of which forward pass it is.
    """

    inputs: Any
    labels: Tensor
    weights: Tensor
    ids: tuple[str, ...]
    share: Share


class TrainingBatches(TorchDataset["TrainingBatch | DataError"]):
    """Item k is this process's share of forward pass k.

    Args:
        dataset: labelled samples, their classes numbered as the model's.
        make_inputs: see ``MakeInputs``.
        order: which samples make which forward pass.
        team: the processes that share each forward pass.

    Raises:
        DataError: no samples, or a label that is no class of the model.
    """

    def __init__(self, dataset: Dataset, make_inputs: MakeInputs, order: Order, team: Processes) -> None:
        if len(dataset) == 0:
            raise DataError("there are no samples", where=dataset.reference, fix="choose data with at least one sample")
        check_labels(dataset)
        self._dataset, self._make_inputs, self._order, self._team = dataset, make_inputs, order, team

    def __getitem__(self, number: int) -> TrainingBatch | DataError:
        indices = self._order.indices(number)
        size = len(indices)
        start, stop = (size * part // self._team.count for part in (self._team.index, self._team.index + 1))
        # A process without a sample runs the first one with weight 0, since all must take part in every pass.
        share = Share(number, size, start, stop) if stop > start else Share(number, size, 0, 1)
        try:
            samples = [self._dataset[index] for index in indices[share.rows]]
            inputs = self._make_inputs(samples, share)
        except DataError as error:
            # Returned, since a raised one would reach the user as the traceback of a worker.
            return error
        weight = 1 / self._order.samples_of_step(number) if stop > start else 0.0
        labels = torch.tensor([sample.label for sample in samples])
        weights = torch.full((len(samples),), weight)
        return TrainingBatch(inputs, labels, weights, tuple(sample.id for sample in samples), share)

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
