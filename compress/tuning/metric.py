"""The metric by which a checkpoint is chosen. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from compress.errors import UsageError
from compress.evaluation.gates import metric_hint
from compress.evaluation.metrics.registry import Metric, catalogue
from compress.tuning.options import Training

ONLY_WITH_VALIDATION = ("metric", "evaluate_steps", "patience")


def chosen_metric(name: str, ood: Mapping[str, object]) -> Metric:
    """The metric called ``name``.

    Raises:
        UsageError: there is none, it has no better direction, or it is a cost.
    """
    known = {
        metric.name: metric
        for metric in catalogue(ood).values()
        if metric.better != "none" and metric.scope in ("test", "ood")
    }
    if name not in known:
        raise UsageError(
            f"{name!r} is no metric that a checkpoint can be chosen by", where="--metric", fix=metric_hint(name, known)
        )
    return known[name]


def checkpoint_metric(options: Training, ood: Mapping[str, object], validated: bool) -> Metric | None:
    """What the best checkpoint of a training is chosen by; None without a validation set.

    Raises:
        UsageError: an unknown metric, or an option that means nothing without a validation set.
    """
    if validated:
        return chosen_metric(options.metric, ood)
    for name in ONLY_WITH_VALIDATION:
        if getattr(options, name) != Training.model_fields[name].default:
            raise UsageError(
                "needs a validation set", where=f"--{name.replace('_', '-')}", fix="pass --validation, or leave it out"
            )
    return None
