"""The hidden states of a data set as they enter one layer, so that layers below a search run once and not per head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from compress.data.base import Dataset
from compress.pruning.reading import computing, read
from compress.runtime import Runtime
from compress.transformer.model import Gates, Transformer
from compress.transformer.parts import Hidden, Inputs

CACHE_BYTES = 4 * 2**30


@dataclass(frozen=True, eq=False)
class Entering:
    """One batch as it enters the layer: hidden states on the runtime's device, labels ``(B,)`` or None."""

    hidden: Hidden
    labels: Tensor | None


class HiddenCache:
    """Batches of hidden states before step ``step`` of the model, with heads masked below it.

    Kept in main memory up to ``limit`` bytes; batches beyond are read and run from the start each time, which costs one
    pass over the lower layers where a search makes one pass per head over the upper ones.

    Args:
        model: a single model on the runtime's device, in evaluation mode.
        dataset: the data.
        part: the samples of this process.
        runtime: device, number format, batch size.
        step: position in ``model.order``.
        gates: per layer ``(1, n_l)`` or None.
        limit: memory of the kept states, bytes.
    """

    def __init__(
        self,
        model: Transformer,
        dataset: Dataset,
        part: Sequence[int],
        runtime: Runtime,
        *,
        step: int,
        gates: Gates,
        limit: int = CACHE_BYTES,
    ) -> None:
        self._model, self._dataset, self._part, self._runtime = model, dataset, part, runtime
        self._step, self._gates = step, gates
        self._room, self._kept = limit, list[Entering]()
        self._kept_samples, self._full = 0, False

    @property
    def batches(self) -> int:
        """How many batches one iteration gives."""
        return -(-len(self._part) // self._runtime.batch_size)

    def __iter__(self) -> Iterator[Entering]:
        yield from (_moved(entering, self._runtime.torch_device()) for entering in self._kept)
        for inputs, labels in self._read_rest():
            with computing(self._runtime):
                embedded = self._model.embed(inputs)
                entering = Entering(self._model.run_layers(embedded, stop=self._step, gates=self._gates), labels)
            self._keep(entering)
            yield entering

    def advance(self, step: int, gates: Gates) -> None:
        """Go on to a later step; ``gates`` may differ from the earlier ones from the present step on."""
        device = self._runtime.torch_device()
        for number, entering in enumerate(self._kept):
            with computing(self._runtime):
                hidden = _moved(entering, device).hidden
                hidden = self._model.run_layers(hidden, start=self._step, stop=step, gates=gates)
            self._kept[number] = _moved(Entering(hidden, entering.labels), torch.device("cpu"))
        self._step, self._gates = step, gates

    def _read_rest(self) -> Iterator[tuple[Inputs, Tensor | None]]:
        rest = self._part[self._kept_samples :]
        if len(rest) or not self._kept:
            yield from read(self._model, self._dataset, rest, self._runtime)

    def _keep(self, entering: Entering) -> None:
        """Hold a batch if it is the next one and there is room."""
        states = entering.hidden.states
        self._full = self._full or states.nbytes > self._room
        if not self._full:
            self._room -= states.nbytes
            self._kept.append(_moved(entering, torch.device("cpu")))
            self._kept_samples += len(states)


def _moved(entering: Entering, device: torch.device) -> Entering:
    hidden = entering.hidden
    mask = None if hidden.mask is None else hidden.mask.to(device)
    pooled = hidden.pooled.to(device) if isinstance(hidden.pooled, Tensor) else hidden.pooled
    return replace(entering, hidden=Hidden(hidden.states.to(device), mask, pooled))
