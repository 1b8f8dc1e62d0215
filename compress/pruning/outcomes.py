"""What a model answers to every sample while some of its heads are masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.data.base import Dataset
from compress.distributed import processes
from compress.placing import evaluating
from compress.progress import progress
from compress.pruning.reading import computing, read
from compress.runtime import Runtime
from compress.transformer.model import Gates, Transformer


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Answers of V variants of a model to S samples, on the CPU.

    Attributes:
        confidence: largest probability, ``(V, S)`` float64.
        predicted: its class, ``(V, S)`` int64.
        cross_entropy: of the labels, in nats, ``(V, S)`` float64; None for unlabelled data.
    """

    confidence: Tensor
    predicted: Tensor
    cross_entropy: Tensor | None

    def of_samples(self, positions: Tensor) -> Outcomes:
        """The answers to the samples at ``positions``, which may repeat."""
        loss = None if self.cross_entropy is None else self.cross_entropy[:, positions]
        return Outcomes(self.confidence[:, positions], self.predicted[:, positions], loss)


def outcomes_of(logits: Tensor, labels: Tensor | None) -> Outcomes:
    """From logits ``(V, B, K)`` and labels ``(B,)``.

    In float64: confidences near 1 still rank, and the loss of a wrong, certain answer is finite.
    """
    log_probabilities = logits.to("cpu", torch.float64).log_softmax(-1)
    confidence, predicted = log_probabilities.max(-1)
    loss = None
    if labels is not None:
        loss = -log_probabilities.gather(2, labels.cpu()[None, :, None].expand(len(logits), -1, 1)).squeeze(2)
    return Outcomes(confidence.exp(), predicted, loss)


def joined_variants(parts: Sequence[Outcomes]) -> Outcomes:
    """Outcomes of other variants on the same samples, one after the other."""
    return _joined(parts, 0)


def joined_samples(parts: Sequence[Outcomes]) -> Outcomes:
    """Outcomes of the same variants on other samples, one after the other."""
    return _joined(parts, 1)


def masked_outcomes(
    model: Transformer, dataset: Dataset, variants: Sequence[Gates], runtime: Runtime, label: str
) -> Outcomes:
    """Answers to every sample while the heads' contexts are multiplied by gates; the stem runs once for all variants.

    Args:
        model: a single model.
        dataset: labelled in the order of the model's classes, or not.
        variants: gates of each variant, per layer ``(1, n_l)`` or None.
        runtime: device, number format (autocast), batch size. Several processes share the batches.
        label: title of the progress bar.
    """
    model = model.to(runtime.torch_device())
    team = processes(runtime.torch_device())
    part = team.part(len(dataset), runtime.batch_size)

    def work() -> list[Outcomes]:
        found = []
        total = -(-len(part) // runtime.batch_size)
        for inputs, labels in progress(read(model, dataset, part, runtime), label, total):
            with computing(runtime):
                embedded = model.embed(inputs)
                logits = [model.classify(model.run_layers(embedded, gates=gates))[0] for gates in variants]
            found.append(outcomes_of(torch.stack(logits), labels))
        return found

    with evaluating(model):
        return joined_samples([outcome for found in team.together(work) for outcome in found])


def _joined(parts: Sequence[Outcomes], axis: int) -> Outcomes:
    losses = [part.cross_entropy for part in parts]
    return Outcomes(
        torch.cat([part.confidence for part in parts], axis),
        torch.cat([part.predicted for part in parts], axis),
        None
        if any(loss is None for loss in losses)
        else torch.cat([loss for loss in losses if loss is not None], axis),
    )
