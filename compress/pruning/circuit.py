"""Circuit extraction: a layer-conditioned search for the heads that a model cannot do without.

S is empty at first. In each layer, from the lowest up, every head's loss is measured with S and that head masked; the n
heads with the highest losses join S. S is the circuit. The heads are masked on top of those already found, so that a
head counts by what it does beyond the heads below it.

Source: HeadMap, Wang et al., ICLR 2025 (openreview.net/forum?id=jUsrbOuQ5e), Algorithm 1. What the heads of a layer
share is computed once: the layers below (``hidden_cache``) and the layer's attention (``candidates``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from compress.data.base import Dataset
from compress.data.subset import take
from compress.distributed import processes
from compress.errors import ModelError
from compress.placing import evaluating
from compress.pruning.candidates import candidate_logits
from compress.pruning.circuit_scores import Search, SearchScores
from compress.pruning.hidden_cache import HiddenCache
from compress.pruning.masking import without
from compress.pruning.objectives import Losses, NonFiniteVariantError, measure_losses
from compress.pruning.outcomes import Outcomes, joined_samples, joined_variants, outcomes_of
from compress.pruning.reading import computing
from compress.pruning.scores import bootstrap
from compress.runtime import Runtime
from compress.transformer.model import Gates, Transformer

Advanced = Callable[[int], object]
"""Told how many more passes of a candidate's batch through one layer are done."""


class CircuitSearcher:
    """Runs searches on one model and its data.

    Args:
        model: a single model.
        calibration: labelled in the order of the model's classes; without labels only the objective ``ood`` works.
        foreign: the foreign validation set, or None.
        runtime: device, number format (autocast), batch size. Several processes share the batches.
    """

    def __init__(self, model: Transformer, calibration: Dataset, foreign: Dataset | None, runtime: Runtime) -> None:
        self._model = model.to(runtime.torch_device())
        self._sets = [calibration] if foreign is None else [calibration, foreign]
        self._runtime = runtime
        self._team = processes(runtime.torch_device())

    def layer_passes(self, search: Search, done: int = 0) -> int:
        """How many passes of a candidate's batch through one layer are left after ``done`` layers, in this process."""
        batches = sum(-(-len(self._part(data)) // self._runtime.batch_size) for data, _ in self._samples(search))
        left = range(search.start + done, search.start + len(search.keep))
        return sum(batches * self._slots(layer) * self._steps_above(layer) for layer in left)

    def run(
        self,
        found: SearchScores,
        *,
        advanced: Advanced = lambda passes: None,
        record: Callable[[SearchScores], object] = lambda found: None,
    ) -> SearchScores:
        """Search the layers that are left.

        Args:
            found: what is searched, and the layers that are done.
            advanced: see ``Advanced``.
            record: given the state after each layer.

        Raises:
            DataError: a sample cannot be read.
            ModelError: an answer is not finite; names layer and head.
        """
        with evaluating(self._model):
            caches = self._caches(found)
            while not found.complete:
                layer = found.search.start + len(found.losses)
                gates = self._gates(found)
                outcomes = [
                    self._outcomes(cache, layer, gates, advanced).of_samples(drawn)
                    for cache, (_, drawn) in zip(caches, self._samples(found.search), strict=True)
                ]
                found = SearchScores(found.search, (*found.losses, _losses(outcomes, layer)))
                record(found)
                if not found.complete:
                    for cache in caches:
                        cache.advance(self._model.order.index(layer + 1), self._gates(found))
        return found

    def _gates(self, found: SearchScores) -> Gates:
        """Mask the circuit as far as it is known."""
        return without(self._model, [*found.search.masked, *found.circuit])

    def _caches(self, found: SearchScores) -> list[HiddenCache]:
        """The hidden states of every set as they enter the next layer to be searched."""
        if found.complete:
            return []
        step = self._model.order.index(found.search.start + len(found.losses))
        return [
            HiddenCache(self._model, data, self._part(data), self._runtime, step=step, gates=self._gates(found))
            for data, _ in self._samples(found.search)
        ]

    def _samples(self, search: Search) -> list[tuple[Dataset, Tensor]]:
        """Per set the samples that a search looks at, and which of them count, as often as they were drawn."""
        if search.bootstrap is None:
            return [(data, torch.arange(len(data))) for data in self._sets]
        draws = bootstrap(*search.bootstrap, *map(len, self._sets))
        found = []
        for data, drawn in zip(self._sets, draws, strict=True):
            distinct, positions = torch.unique(drawn, return_inverse=True)
            found.append((take(data, distinct.tolist()), positions))
        return found

    def _part(self, data: Dataset) -> range:
        return self._team.part(len(data), self._runtime.batch_size)

    def _outcomes(self, cache: HiddenCache, layer: int, gates: Gates, advanced: Advanced) -> Outcomes:
        """Answers without each head of a layer to all samples of a set, from all processes."""

        def work() -> list[Outcomes]:
            found = []
            for entering in cache:
                groups = []
                with computing(self._runtime):
                    for logits in candidate_logits(self._model, entering.hidden, layer, gates):
                        groups.append(outcomes_of(logits, entering.labels))
                        advanced(len(logits) * self._steps_above(layer))
                found.append(joined_variants(groups))
            return found

        return joined_samples([outcomes for part in self._team.together(work) for outcomes in part])

    def _slots(self, layer: int) -> int:
        return int(self._model.layers[layer].attention.slots)

    def _steps_above(self, layer: int) -> int:
        return len(self._model.order) - self._model.order.index(layer)


def _losses(outcomes: Sequence[Outcomes], layer: int) -> Losses:
    try:
        return measure_losses(*outcomes)
    except NonFiniteVariantError as error:
        raise ModelError(
            f"the answers without head slot {error.variant} of layer {layer} are not finite",
            fix="look for NaN weights, or search in float32",
        ) from None
