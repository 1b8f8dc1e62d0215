"""The forward passes of a model over a data set, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, require_kind
from compress.data.batches import batches
from compress.data.reading import read_ahead
from compress.errors import DataError
from compress.placing import to_device
from compress.progress import progress
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.usage import Usage


class Answering(Protocol):
    """A model, or several that answer together."""

    def members(self, inputs: Inputs) -> Tensor:
        """Logits of every member, ``(M, B, K)``."""
        ...

    @property
    def usages(self) -> tuple[Usage | None, ...]:
        """What the last prediction executed, one entry per pass through a transformer; None for everything."""
        ...


@dataclass(frozen=True)
class Answers:
    """What a model said to one batch.

    Attributes:
        logits: ``(M, B, K)`` on the model's device.
        labels: ``(B,)`` int64 on the CPU; None for unlabelled data.
        ids: names of the samples.
        lengths: real tokens of each input; empty for images, which are all of one size.
        usage: per pass through a transformer, what it executed; None for everything.
    """

    logits: Tensor
    labels: Tensor | None
    ids: tuple[str, ...]
    lengths: list[int]
    usage: tuple[Usage | None, ...] = ()


def answers(
    module: Answering,
    model: Transformer,
    dataset: Dataset,
    runtime: Runtime,
    label: str,
    *,
    indices: Sequence[int] | None = None,
) -> Iterator[Answers]:
    """Run over every sample, in order, without gradients; nothing for an empty set.

    Args:
        module: in evaluation mode, on the runtime's device and in its number format.
        model: whose preprocessing the inputs get; ``module`` or one of its parts.
        dataset: labelled in the order of the model's classes, or unlabelled.
        runtime: device, number format, batch size.
        label: title of the progress bar.
        indices: positions of the samples to run over; None for all.

    Raises:
        DataError: the model reads another kind of data, or a sample cannot be read.
    """
    require_kind(dataset, model.config.preprocessing.kind)
    samples = len(dataset) if indices is None else len(indices)
    if samples == 0:
        return
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    steps = read_ahead(batches(dataset, preprocessor(model), batch_size=runtime.batch_size, indices=indices))
    for batch in progress(steps, label, -(-samples // runtime.batch_size)):
        # Not around the loop: the consumer's own work between two batches is none of our business.
        with torch.inference_mode():
            logits = module.members(to_device(batch.inputs, device, dtype))
        yield Answers(logits, batch.labels, batch.ids, token_lengths(batch.inputs), module.usages)


def all_answers(
    module: Answering, model: Transformer, dataset: Dataset, runtime: Runtime, label: str
) -> tuple[Tensor, Tensor]:
    """The logits ``(M, N, K)`` and labels ``(N,)`` of a labelled set, on the CPU; see ``answers``.

    Logits keep the model's number format. Memory grows with M · N · K: for calibration sets of thousands of samples.

    Raises:
        DataError: as ``answers``; or there is no sample.
    """
    logits, labels = [], []
    for batch in answers(module, model, dataset, runtime, label):
        if batch.labels is not None:
            logits.append(batch.logits.cpu())
            labels.append(batch.labels)
    if not labels:
        raise DataError("there is no labelled sample", where=dataset.reference, fix="give labelled data")
    return torch.cat(logits, dim=1), torch.cat(labels)


def token_lengths(inputs: Inputs) -> list[int]:
    """Real tokens of every input; nothing for images."""
    if isinstance(inputs, Tensor) or not isinstance(inputs, Mapping) or "attention_mask" not in inputs:
        return []
    return [int(length) for length in inputs["attention_mask"].sum(1).tolist()]
