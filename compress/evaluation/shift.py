"""Accuracy and calibration of models whose test set is corrupted more and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from compress.data.base import Dataset
from compress.data.corruptions.corrupted import corrupted
from compress.data.corruptions.registry import SEVERITIES
from compress.evaluation.measurement import Measurement, measure
from compress.evaluation.metrics.registry import SHIFT_FIGURES, catalogue
from compress.evaluation.predictions import Columns, Predictions
from compress.evaluation.result import ShiftPoint


def shifted_sets(test: Dataset, corruptions: Iterable[str], seed: int) -> Iterator[tuple[str, int, Dataset]]:
    """Every corruption at every severity, with the corrupted set."""
    for corruption in corruptions:
        for severity in SEVERITIES:
            yield corruption, severity, corrupted(test, corruption, severity, seed)


def shift_point(model: str, corruption: str, severity: int, columns: Columns) -> ShiftPoint:
    """Accuracy, NLL and ECE of one model on one corrupted set."""
    known = catalogue()
    found = measure(Predictions(columns), [known[name] for name in SHIFT_FIGURES.values()])
    figures = {figure: found[name] for figure, name in SHIFT_FIGURES.items()}
    return ShiftPoint(
        model=model,
        corruption=corruption,
        severity=severity,
        accuracy=figures["accuracy"].value,
        nll=figures["nll"].value,
        ece=figures["ece"].value,
        reasons={figure: found.reason for figure, found in figures.items() if found.reason is not None},
    )


def collect_shift(
    models: Sequence[str],
    test: Dataset,
    corruptions: Iterable[str],
    predict: Callable[[str, str, Dataset], Columns],
    seed: int,
) -> tuple[ShiftPoint, ...]:
    """The points of all models, by corruption, then severity, then model.

    Args:
        models: their names.
        test: the clean set.
        corruptions: names of corruptions of its kind.
        predict: from a model's name, a set's name and the set to the predictions' columns.
        seed: of the corruptions.
    """
    return tuple(
        shift_point(model, corruption, severity, predict(model, f"shift/{corruption}/{severity}", dataset))
        for corruption, severity, dataset in shifted_sets(test, corruptions, seed)
        for model in models
    )


def shift_metrics(points: Iterable[ShiftPoint], model: str) -> dict[str, Measurement]:
    """The means over severities, and over severities and corruptions, of one model; by the metric's name."""
    own = [point for point in points if point.model == model]
    groups = {"shift": own} if own else {}
    for point in own:
        groups.setdefault(f"shift/{point.corruption}", []).append(point)
    return {f"{prefix}/{figure}": _mean(group, figure) for prefix, group in groups.items() for figure in SHIFT_FIGURES}


def _mean(points: Sequence[ShiftPoint], figure: str) -> Measurement:
    values = []
    for point in points:
        value = getattr(point, figure)
        if value is None:
            where = f"{point.corruption}, severity {point.severity}"
            return Measurement(None, f"{where}: {point.reasons.get(figure, 'not computed')}")
        values.append(value)
    return Measurement(sum(values) / len(values))
