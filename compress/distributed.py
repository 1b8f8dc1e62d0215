"""One process, or several that accelerate or torchrun launched: who does which part, and what they tell each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from compress.errors import CompressError, UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """The processes that run the same command together.

    Attributes:
        index: number of this process, 0-based; process 0 writes files.
        count: how many there are.
    """

    index: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is process 0."""
        return self.index == 0

    def part(self, samples: int, batch_size: int) -> range:
        """The samples that this process looks at: whole batches, so that each is the one that a single process makes.

        The parts follow each other in the order of the processes and cover every sample once. A process that no batch
        is left for has an empty part.
        """
        batches = -(-samples // batch_size)
        start, stop = (batches * number // self.count * batch_size for number in (self.index, self.index + 1))
        return range(min(start, samples), min(stop, samples))

    def together(self, work: Callable[[], T]) -> list[T]:
        """Run ``work`` in every process; everybody gets the results of all, in the order of the processes.

        Raises:
            CompressError: that of the first process in which ``work`` raised one, so that none waits for the others.
        """
        if self.count == 1:
            return [work()]
        results: list[T | CompressError] = gather_object([_caught(work)])
        return [_unwrapped(result) for result in results]

    def on_main(self, work: Callable[[], T]) -> T:
        """Run ``work`` in process 0 alone; everybody waits for it and gets its result, or its ``CompressError``."""
        if self.count == 1:
            return work()
        results: list[T | CompressError] = gather_object([_caught(work)] if self.is_main else [])
        return _unwrapped(results[0])


def processes(device: torch.device) -> Processes:
    """The processes of this command; the first call joins them.

    Args:
        device: where this command computes; on a CPU the processes talk through gloo.

    Raises:
        UsageError: one numbered device for several processes.
    """
    if not _launched():
        return Processes()
    if device.index is not None and device.type != "cpu":
        raise UsageError(
            f"{device} is one device for several processes", where="--device", fix=f"use {device.type} or auto"
        )
    state = PartialState(cpu=device.type == "cpu")
    return Processes(state.process_index, state.num_processes)


def _launched() -> bool:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return True
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def _caught(work: Callable[[], T]) -> T | CompressError:
    try:
        return work()
    except CompressError as error:
        return error


def _unwrapped(result: T | CompressError) -> T:
    if isinstance(result, CompressError):
        raise result
    return result
