"""Every metric by name: where it is computed, its unit, and which direction is better.

Importing this module imports no torch: gates and help texts need the names before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from compress.errors import UsageError
from compress.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from compress.evaluation.predictions import Columns

Direction = Literal["higher", "lower", "none"]
Scope = Literal["test", "ood", "heads", "shift", "cost", "use"]

DEFAULT_SCORE = "max_probability"
OOD_SCORES: Registry[Callable[[Columns], Tensor]] = Registry(
    "out-of-distribution score",
    {
        name: f"compress.evaluation.metrics.ood_scores:{name}"
        for name in (DEFAULT_SCORE, "entropy", "mutual_information", "energy", "max_logit")
    },
)


@dataclass(frozen=True)
class Metric:
    """What is known about a metric before it is computed.

    Attributes:
        name: as in JSON and gates: ``cal/ece``, ``ood/svhn/auroc``, ``ood/svhn/entropy/auroc``.
        better: which direction is better; ``none`` where neither is by itself.
        unit: the unit of the value; empty for a share or a score without unit.
        description: one line.
        target: its key in ``METRICS``; ``None`` for costs and for means over a shift, which are not computed from the
            predictions on one set.
        scope: what it is computed from.
        headline: whether it gets a bootstrap interval.
        dataset, score: for ``ood`` metrics, the set's name and the score's.
    """

    name: str
    better: Direction
    unit: str
    description: str
    target: str | None = None
    scope: Scope = "test"
    headline: bool = False
    dataset: str = ""
    score: str = ""


def _test(name: str, better: Direction, unit: str, description: str, *, headline: bool = False) -> Metric:
    return Metric(name, better, unit, description, name, headline=headline)


_PACKAGE = "compress.evaluation.metrics"
METRICS: Registry[Callable[..., Tensor]] = Registry(
    "metric",
    {
        "cls/accuracy": f"{_PACKAGE}.accuracy:accuracy",
        "cls/top5_accuracy": f"{_PACKAGE}.top5_accuracy:top5_accuracy",
        "cls/nll": f"{_PACKAGE}.nll:nll",
        "cls/brier": f"{_PACKAGE}.brier:brier",
        "cal/ece": f"{_PACKAGE}.expected_calibration_error:expected_calibration_error",
        "cal/ace": f"{_PACKAGE}.adaptive_calibration_error:adaptive_calibration_error",
        "cal/classwise_ece": f"{_PACKAGE}.classwise_calibration_error:classwise_calibration_error",
        "cal/signed_ece": f"{_PACKAGE}.signed_calibration_error:signed_calibration_error",
        "cal/overconfidence": f"{_PACKAGE}.overconfidence:overconfidence",
        "cal/underconfidence": f"{_PACKAGE}.underconfidence:underconfidence",
        "sc/aurc": f"{_PACKAGE}.aurc:aurc",
        "sc/risk_at_80": f"{_PACKAGE}.risk_at_coverage:risk_at_80",
        "sc/risk_at_90": f"{_PACKAGE}.risk_at_coverage:risk_at_90",
        "div/disagreement": f"{_PACKAGE}.disagreement:disagreement",
        "div/kl": f"{_PACKAGE}.kl:kl",
        "div/jaccard": f"{_PACKAGE}.jaccard:jaccard",
        "ood/auroc": f"{_PACKAGE}.ood_auroc:ood_auroc",
        "ood/aupr_in": f"{_PACKAGE}.ood_aupr_in:ood_aupr_in",
        "ood/aupr_out": f"{_PACKAGE}.ood_aupr_out:ood_aupr_out",
        "ood/fpr95": f"{_PACKAGE}.ood_fpr95:ood_fpr95",
    },
)

_TEST = (
    _test("cls/accuracy", "higher", "", "share of inputs classified right", headline=True),
    _test("cls/top5_accuracy", "higher", "", "share of inputs whose label is among the five likeliest classes"),
    _test("cls/nll", "lower", "nats", "negative log-likelihood of the labels", headline=True),
    _test("cls/brier", "lower", "", "squared error of the probabilities, summed over classes", headline=True),
    _test("cal/ece", "lower", "", "expected calibration error, 15 equal-width bins", headline=True),
    _test("cal/ace", "lower", "", "expected calibration error, 15 bins of equal size"),
    _test("cal/classwise_ece", "lower", "", "expected calibration error of each class's probability, averaged"),
    _test("cal/signed_ece", "none", "", "mean confidence minus accuracy; positive is over-confident"),
    _test("cal/overconfidence", "lower", "", "part of the calibration error from over-confident bins"),
    _test("cal/underconfidence", "lower", "", "part of the calibration error from under-confident bins"),
    _test("sc/aurc", "lower", "", "error rate averaged over all coverages, most confident inputs first", headline=True),
    _test("sc/risk_at_80", "lower", "", "error rate of the 80 % most confident inputs"),
    _test("sc/risk_at_90", "lower", "", "error rate of the 90 % most confident inputs"),
    _test(
        "div/disagreement", "none", "", "share of inputs on which two members predict different classes", headline=True
    ),
    _test("div/kl", "none", "nats", "mean pairwise KL divergence of the members' probabilities"),
    Metric("div/jaccard", "lower", "", "overlap of the heads that two members keep", "div/jaccard", "heads"),
)
_OOD = (
    Metric("auroc", "higher", "", "area under the ROC curve of detection", "ood/auroc", "ood", headline=True),
    Metric("aupr_in", "higher", "", "average precision, in-distribution positive", "ood/aupr_in", "ood"),
    Metric("aupr_out", "higher", "", "average precision, out-of-distribution positive", "ood/aupr_out", "ood"),
    Metric("fpr95", "lower", "", "false-positive rate at 95 % true positives", "ood/fpr95", "ood", headline=True),
)
SHIFT_FIGURES = {"accuracy": "cls/accuracy", "nll": "cls/nll", "ece": "cal/ece"}
"""What is measured at each severity of a shift, and the metric that it is."""

_COST = (
    Metric("cost/params", "lower", "", "parameters", scope="cost"),
    Metric("cost/bytes", "lower", "bytes", "size on disk", scope="cost"),
    Metric("cost/flops", "lower", "FLOPs", "mean per input, analytic", scope="cost"),
    Metric("cost/flops_p05", "lower", "FLOPs", "5th percentile over the inputs, analytic", scope="cost"),
    Metric("cost/flops_p95", "lower", "FLOPs", "95th percentile over the inputs, analytic", scope="cost"),
    Metric("cost/attention_flops", "lower", "FLOPs", "attention sub-layers, mean per input", scope="cost"),
    Metric("cost/attention_flops_p05", "lower", "FLOPs", "attention sub-layers, 5th percentile", scope="cost"),
    Metric("cost/attention_flops_p95", "lower", "FLOPs", "attention sub-layers, 95th percentile", scope="cost"),
    Metric("cost/latency_ms", "lower", "ms", "median time of one batch", scope="cost"),
    Metric("cost/throughput", "higher", "inputs/s", "inputs per second", scope="cost"),
    Metric("cost/peak_mb", "lower", "MB", "weights and peak of a forward pass", scope="cost"),
    Metric("cost/energy_j", "lower", "J", "energy per input, estimated", scope="cost"),
    Metric("cost/co2_g", "lower", "g", "CO2 per input, estimated", scope="cost"),
)

_USE = (
    Metric("budget/mean", "lower", "", "share of the heads that ran, mean over the inputs", scope="use"),
    Metric("budget/p05", "lower", "", "share of the heads that ran, 5th percentile over the inputs", scope="use"),
    Metric("budget/p95", "lower", "", "share of the heads that ran, 95th percentile over the inputs", scope="use"),
    Metric("route/kept", "lower", "", "share of the tokens that passed the routed layers, mean", scope="use"),
)


def catalogue(ood: Iterable[str] = (), shift: Iterable[str] = ()) -> dict[str, Metric]:
    """All metrics of a call by name, those of each out-of-distribution set included.

    ``ood/NAME/auroc`` uses the score ``max_probability``; ``ood/NAME/SCORE/auroc`` exists for every score.
    ``shift/CORRUPTION/accuracy`` is the mean over the severities, ``shift/accuracy`` that over the corruptions.

    Args:
        ood: names of the out-of-distribution sets.
        shift: corruptions of the test set.

    Raises:
        UsageError: a set's name is empty or has a slash, a space or a comparison sign, so no gate could name it.
    """
    metrics = {metric.name: metric for metric in _TEST}
    for dataset in ood:
        if not dataset or any(character in "/<>=" or character.isspace() for character in dataset):
            raise UsageError(
                f"{dataset!r} cannot name an out-of-distribution set", where="--ood", fix="use letters, digits, - and _"
            )
        for score in OOD_SCORES:
            for metric in _OOD:
                default = score == DEFAULT_SCORE
                name = f"ood/{dataset}/{metric.name}" if default else f"ood/{dataset}/{score}/{metric.name}"
                metrics[name] = replace(
                    metric,
                    name=name,
                    description=f"{metric.description}; score: {score.replace('_', ' ')}",
                    headline=metric.headline and default,
                    dataset=dataset,
                    score=score,
                )
    return metrics | _shift(tuple(shift)) | {metric.name: metric for metric in (*_USE, *_COST)}


def _shift(corruptions: tuple[str, ...]) -> dict[str, Metric]:
    metrics = {}
    for prefix in ("shift", *(f"shift/{corruption}" for corruption in corruptions)) if corruptions else ():
        for figure, target in SHIFT_FIGURES.items():
            known = next(metric for metric in _TEST if metric.name == target)
            description = f"{known.description}; mean over the severities{' and corruptions' * (prefix == 'shift')}"
            name = f"{prefix}/{figure}"
            metrics[name] = Metric(name, known.better, known.unit, description, scope="shift")
    return metrics
