"""From a model's predictions to the values of all metrics, each a number or a reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from compress.evaluation.metrics.detection import Detection, detect
from compress.evaluation.metrics.registry import METRICS, OOD_SCORES, Metric
from compress.evaluation.predictions import Predictions
from compress.evaluation.unavailable import UnavailableMetricError

Statistic = Callable[..., Tensor]
Bound = Statistic | UnavailableMetricError


@dataclass(frozen=True)
class Measurement:
    """A metric's value, or ``None`` and the reason."""

    value: float | None
    reason: str | None = None


def measure(predictions: Predictions, metrics: Iterable[Metric]) -> dict[str, Measurement]:
    """Compute the metrics (``catalogue(...).values()``; costs are passed over), in their order."""
    return {metric.name: _value(statistic) for metric, statistic in bind(predictions, metrics)}


def bind(predictions: Predictions, metrics: Iterable[Metric]) -> Iterator[tuple[Metric, Bound]]:
    """Pair each metric with a function of bootstrap weights (or nothing) that holds what is computed once.

    Metrics of one set and score share one ranking of the samples; only the last ranking is held.
    """
    last: tuple[str, str] | None = None
    detection: Detection | UnavailableMetricError | None = None
    for metric in metrics:
        if metric.target is None:
            continue
        function: Callable[..., Tensor] = METRICS[metric.target]
        if metric.scope == "test":
            yield metric, partial(function, predictions.test)
        elif metric.scope == "heads":
            yield metric, partial(function, predictions.kept_heads, predictions.branch_layer)
        else:
            if detection is None or last != (metric.dataset, metric.score):
                last, detection = (metric.dataset, metric.score), _detection(predictions, metric)
            yield metric, detection if isinstance(detection, UnavailableMetricError) else partial(function, detection)


def _detection(predictions: Predictions, metric: Metric) -> Detection | UnavailableMetricError:
    score = OOD_SCORES[metric.score]
    try:
        inside = score(predictions.test)
    except UnavailableMetricError as unavailable:
        return unavailable
    try:
        return detect(inside, score(predictions.ood[metric.dataset]))
    except UnavailableMetricError as unavailable:
        return UnavailableMetricError(f"out-of-distribution set {metric.dataset}: {unavailable}")


def _value(statistic: Bound) -> Measurement:
    if isinstance(statistic, UnavailableMetricError):
        return Measurement(None, str(statistic))
    try:
        value = float(statistic())
    except UnavailableMetricError as unavailable:
        return Measurement(None, str(unavailable))
    if math.isfinite(value):
        return Measurement(value)
    return Measurement(None, "not a number" if math.isnan(value) else "infinite: a class of probability 0 is needed")
