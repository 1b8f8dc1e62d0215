"""Running a model over a data set, batch by batch, into per-sample columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from compress.data.base import Dataset, require_kind
from compress.distributed import processes
from compress.evaluation.input_use import InputUse, UseMeter, joined_use
from compress.evaluation.predictions import ColumnCollector, Columns
from compress.evaluation.stored.rows import LogitRows
from compress.evaluation.subject import Subject
from compress.inference.forward import answers
from compress.runtime import Runtime


@dataclass
class Collected:
    """What running over a set gave.

    Attributes:
        columns: per-sample results.
        lengths: how many inputs had how many real tokens; empty for images.
        use: heads, tokens and FLOPs of every input; None when each was given everything.
    """

    columns: Columns
    lengths: Counter[int] = field(default_factory=Counter)
    use: InputUse | None = None


def collect(
    subject: Subject, dataset: Dataset, runtime: Runtime, label: str, rows: LogitRows | None = None
) -> Collected:
    """Predict every sample of ``dataset``; an empty set gives empty columns.

    Several processes share the batches, each as a single process would make it; every one gets all columns.

    Args:
        subject: the model.
        dataset: labelled in the order of the model's classes, or unlabelled.
        runtime: device, number format, batch size.
        label: title of the progress bar.
        rows: where the logits are kept as well; for a single process only.
    """
    require_kind(dataset, subject.models[0].config.preprocessing.kind)
    team = processes(runtime.torch_device())
    part = team.part(len(dataset), runtime.batch_size)
    parts = team.together(lambda: _predict(subject, dataset, part, runtime, label, rows))
    collector, lengths, use = parts[0]
    for other, more, further in parts[1:]:
        collector.extend(other)
        lengths.update(more)
        use += further
    return Collected(collector.finish(), lengths, joined_use(use))


def _predict(
    subject: Subject, dataset: Dataset, part: Sequence[int], runtime: Runtime, label: str, rows: LogitRows | None
) -> tuple[ColumnCollector, Counter[int], list[InputUse]]:
    """The reduced predictions, the lengths and, batch by batch, the use of the samples ``part``."""
    collector = ColumnCollector()
    lengths: Counter[int] = Counter()
    meter = UseMeter(subject.models)
    use = []
    for batch in answers(subject.module, subject.models[0], dataset, runtime, label, indices=part):
        lengths.update(batch.lengths)
        collector.add(batch.logits, batch.labels, batch.ids)
        measured = meter.measure(batch.usage, batch.lengths, len(batch.ids))
        if measured is not None:
            use.append(measured)
        if rows is not None:
            rows.add(batch.logits)
    collector.reduce()
    return collector, lengths, use
