"""The validation set: any metric of ``eval``, and which checkpoint is the best by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.data.base import Dataset
from compress.errors import DataError
from compress.evaluation.collect import collect
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import Metric, catalogue
from compress.evaluation.predictions import Predictions
from compress.evaluation.subject import Subject
from compress.runtime import Runtime
from compress.transformer.model import Transformer

ALWAYS_SHOWN = ("cls/accuracy", "cls/nll")


@dataclass(frozen=True)
class Score:
    """What a validation set says of a model: the value of the chosen metric, and all that is shown."""

    value: float
    shown: Mapping[str, float | None]


@dataclass(frozen=True)
class Validation:
    """Data that tell how good a model is while it trains.

    Attributes:
        dataset: labelled, classes numbered as the model's.
        ood: sets that the model should notice, by name.
        metric: what the best checkpoint is chosen by.
    """

    dataset: Dataset
    ood: Mapping[str, Dataset]
    metric: Metric

    def measure(self, model: Transformer, runtime: Runtime) -> Score:
        """The chosen metric, accuracy and negative log-likelihood of ``model``, which is in evaluation mode.

        Raises:
            DataError: the chosen metric cannot be computed on these data.
        """
        known = catalogue(self.ood)
        wanted = dict.fromkeys((self.metric.name, *ALWAYS_SHOWN))
        subject = Subject("validation", model)
        runtime = runtime.model_copy(update={"dtype": "float32"})  # a narrower format is autocast by the caller
        inside = collect(subject, self.dataset, runtime, "validate").columns
        needed = {self.metric.dataset} if self.metric.dataset else set()
        outside = {name: collect(subject, self.ood[name], runtime, f"validate: {name}").columns for name in needed}
        predictions = Predictions(inside, outside, subject.kept_heads, subject.branch_layer)
        measured = measure(predictions, [known[name] for name in wanted])
        chosen = measured[self.metric.name]
        if chosen.value is None:
            raise DataError(
                f"{self.metric.name} cannot be computed ({chosen.reason})",
                where=self.dataset.reference,
                fix="choose another --metric or --validation",
            )
        return Score(chosen.value, {name: measurement.value for name, measurement in measured.items()})

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether ``value`` beats the best so far; a tie does not."""
        if than is None:
            return True
        return value > than if self.metric.better == "higher" else value < than
