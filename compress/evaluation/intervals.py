"""Percentile bootstrap intervals of the headline metrics, and of their differences between models."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from compress.evaluation.measurement import Statistic, bind
from compress.evaluation.metrics.registry import Metric
from compress.evaluation.predictions import Predictions
from compress.evaluation.result import Interval
from compress.evaluation.unavailable import UnavailableMetricError

MOST_RESAMPLES = 1000
FEWEST_RESAMPLES = 200
# Draws in all: a million samples get 200 resamples, 200,000 or fewer get 1000.
DRAWS = 200_000_000
# Draws held at a time: 8 bytes each, several times over.
DRAWS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class Bootstrap:
    """Intervals of several models from the same resamples.

    Attributes:
        resamples: how many were drawn.
        intervals: by model, then metric; none for a metric that no resample changes.
        differences: by model, then metric: model − first model, from paired resamples; none for the first model.
    """

    resamples: int
    intervals: Mapping[str, Mapping[str, Interval]]
    differences: Mapping[str, Mapping[str, Interval]]


def bootstrap(
    models: Mapping[str, Predictions], metrics: Mapping[str, Metric], *, seed: int = 0, level: float = 0.95
) -> Bootstrap:
    """Draw the samples of each set with replacement and take the percentiles of each headline metric.

    Every model is evaluated on the same draws, so the difference of two models is paired: what is hard for both
    cancels. Test and out-of-distribution sets are drawn independently. Efron and Tibshirani 1993, chapters 13 and 16.

    Args:
        models: predictions by the model's name, on the same samples in the same order; the first is the reference.
        metrics: ``catalogue(...)``; metrics that are no headline are passed over.
        seed: the same seed gives the same intervals.
        level: the interval's coverage.

    Raises:
        ValueError: the models were not evaluated on the same samples.
    """
    names = list(models)
    if not names:
        return Bootstrap(0, {}, {})
    reference = models[names[0]]
    for name in names[1:]:
        _check_same_samples(names[0], reference, name, models[name])
    headline = [metric for metric in metrics.values() if metric.headline]
    statistics = {name: _available(predictions, headline) for name, predictions in models.items()}
    largest = max(len(reference.test), *(len(columns) for columns in reference.ood.values()), 1)
    resamples = min(MOST_RESAMPLES, max(FEWEST_RESAMPLES, DRAWS // largest))

    values = {name: {key: torch.empty(resamples, dtype=torch.float64) for key in statistics[name]} for name in names}
    at_once = max(1, DRAWS_AT_ONCE // largest)
    for start, weights in zip(range(0, resamples, at_once), _draws(reference, resamples, at_once, seed), strict=True):
        for name in names:
            for key, (metric, statistic) in statistics[name].items():
                resampled = statistic(weights=weights[metric.dataset])
                values[name][key][start : start + len(resampled)] = resampled
    return Bootstrap(
        resamples,
        {
            name: {key: percentile_interval(own, level) for key, own in values[name].items() if _vary(own)}
            for name in names
        },
        {
            name: {
                key: percentile_interval(values[name][key] - values[names[0]][key], level)
                for key in values[name]
                if key in values[names[0]]
            }
            for name in names[1:]
        },
    )


def _vary(values: Tensor) -> bool:
    """Whether resamples differ at all: a hundred right answers of a hundred do not say that all others are right."""
    return bool((values != values[0]).any())


def percentile_interval(values: Tensor, level: float = 0.95) -> Interval:
    """The central interval that holds ``level`` of the resampled values ``(R,)``."""
    tail = (1 - level) / 2
    low, high = torch.quantile(values, torch.tensor([tail, 1 - tail], dtype=values.dtype)).tolist()
    return Interval(low=low, high=high)


def _available(predictions: Predictions, metrics: Sequence[Metric]) -> dict[str, tuple[Metric, Statistic]]:
    available = {}
    for metric, statistic in bind(predictions, metrics):
        if isinstance(statistic, UnavailableMetricError):
            continue
        try:
            finite = bool(torch.isfinite(statistic()))
        except UnavailableMetricError:
            continue
        if finite:
            available[metric.name] = (metric, statistic)
    return available


def _draws(predictions: Predictions, resamples: int, at_once: int, seed: int) -> Iterator[dict[str, Tensor]]:
    """How often each sample is drawn: ``(r, N)`` for the test set (key ``""``), ``(r, N + N_out)`` for the others."""
    sizes = {"": len(predictions.test)} | {name: len(columns) for name, columns in predictions.ood.items()}
    # One generator a set: another set in the call does not change the draws of this one.
    generators = {name: np.random.default_rng([seed, zlib.crc32(name.encode())]) for name in sizes}
    for start in range(0, resamples, at_once):
        rows = min(at_once, resamples - start)
        counts = {name: _resample_counts(rows, size, generators[name]) for name, size in sizes.items()}
        yield {name: drawn if not name else torch.cat([counts[""], drawn], dim=1) for name, drawn in counts.items()}


def _resample_counts(rows: int, size: int, generator: np.random.Generator) -> Tensor:
    """Counts ``(rows, size)`` float64 of ``size`` draws with replacement in each row."""
    if not size:
        return torch.zeros(rows, 0, dtype=torch.float64)
    drawn = torch.from_numpy(generator.integers(size, size=(rows, size)))
    drawn += torch.arange(rows)[:, None] * size
    return torch.bincount(drawn.flatten(), minlength=rows * size).reshape(rows, size).to(torch.float64)


def _check_same_samples(first: str, reference: Predictions, other: str, predictions: Predictions) -> None:
    same = reference.test.ids == predictions.test.ids and reference.ood.keys() == predictions.ood.keys()
    if not same or any(reference.ood[name].ids != columns.ids for name, columns in predictions.ood.items()):
        raise ValueError(f"models {first} and {other} were not evaluated on the same samples in the same order")
