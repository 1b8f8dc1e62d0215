"""Running a model over a data set, batch by batch, into per-sample columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, require_kind
from compress.data.batches import batches
from compress.evaluation.predictions import ColumnCollector, Columns
from compress.evaluation.subject import Subject
from compress.placing import to_device
from compress.progress import progress
from compress.runtime import Runtime
from compress.transformer.parts import Inputs


@dataclass
class Collected:
    """What running over a set gave.

    Attributes:
        columns: per-sample results.
        lengths: how many inputs had how many real tokens; empty for images.
    """

    columns: Columns
    lengths: Counter[int] = field(default_factory=Counter)


def collect(subject: Subject, dataset: Dataset, runtime: Runtime, label: str) -> Collected:
    """Predict every sample of ``dataset``; an empty set gives empty columns.

    Args:
        subject: the model.
        dataset: labelled in the order of the model's classes, or unlabelled.
        runtime: device, number format, batch size.
        label: title of the progress bar.
    """
    collector = ColumnCollector()
    lengths: Counter[int] = Counter()
    model = subject.models[0]
    require_kind(dataset, model.config.preprocessing.kind)
    if len(dataset) == 0:
        return Collected(collector.finish())
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    total = -(-len(dataset) // runtime.batch_size)
    steps = batches(dataset, preprocessor(model), batch_size=runtime.batch_size)
    with torch.inference_mode():
        for batch in progress(steps, label, total):
            lengths.update(token_lengths(batch.inputs))
            logits = subject.module.members(to_device(batch.inputs, device, dtype))
            collector.add(logits, batch.labels, batch.ids)
    return Collected(collector.finish(), lengths)


def token_lengths(inputs: Inputs) -> list[int]:
    """Real tokens of every input; nothing for images, which are all of one size."""
    if isinstance(inputs, Tensor) or not isinstance(inputs, Mapping) or "attention_mask" not in inputs:
        return []
    return [int(length) for length in inputs["attention_mask"].sum(1).tolist()]
