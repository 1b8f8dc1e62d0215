"""From predictions and costs to the result: metrics, intervals, differences, gates."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from compress.data.base import Dataset
from compress.evaluation.environment import Environment
from compress.evaluation.gates import Gate, check_gates, passed_gates
from compress.evaluation.input_use import share_summary
from compress.evaluation.intervals import Bootstrap, bootstrap
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import Metric
from compress.evaluation.options import Evaluate
from compress.evaluation.predictions import Predictions
from compress.evaluation.result import Cost, DataSummary, EvaluationResult, ModelResult, Resampling, ShiftPoint
from compress.evaluation.shift import shift_metrics
from compress.evaluation.subject import Subject
from compress.evaluation.use_summary import ShareSummary


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One model of the comparison with everything that was found out about it.

    Attributes:
        name, kind, reference, digest, members, baseline, settings: see ``ModelResult``.
        predictions: its columns.
        cost: what it costs.
        original_heads: heads per layer before any was pruned; empty when unknown.
        budget, kept_tokens: see ``ModelResult``.
    """

    name: str
    kind: str
    predictions: Predictions
    cost: Cost
    reference: str = ""
    digest: str | None = None
    members: int = 1
    baseline: bool = False
    settings: Mapping[str, float] = field(default_factory=dict)
    original_heads: tuple[int, ...] = ()
    budget: ShareSummary | None = None
    kept_tokens: ShareSummary | None = None


def evaluated(subject: Subject, predictions: Predictions, cost: Cost, baselines: Collection[str]) -> Evaluated:
    """What was found out about an opened model; ``baselines`` names those that gates pass over."""
    use = predictions.use
    return Evaluated(
        name=subject.name,
        kind=subject.kind,
        predictions=predictions,
        cost=cost,
        reference=subject.reference,
        digest=None if subject.manifest is None else subject.manifest.digest,
        members=subject.members,
        baseline=bool(subject.baseline) or subject.name in baselines,
        settings=subject.settings,
        original_heads=subject.models[0].structure.original_heads,
        budget=None if use is None else share_summary(use.heads),
        kept_tokens=None if use is None else share_summary(use.tokens),
    )


def summarise(
    models: Sequence[Evaluated],
    *,
    data: DataSummary,
    ood: Mapping[str, DataSummary],
    shift: Sequence[ShiftPoint],
    known: Mapping[str, Metric],
    gates: Sequence[Gate],
    options: Evaluate,
    environment: Environment,
    latency_batch: int | None,
) -> EvaluationResult:
    """The result of an evaluation.

    Args:
        models: in the order of the call; the first is what the others are compared with.
        data, ood: the sets.
        shift: the points of all models.
        known: ``catalogue`` of the call.
        gates: parsed against ``known``.
        options: of the evaluation.
        environment: where it ran.
        latency_batch: inputs per timed call; None when nothing was timed.
    """
    spread = None
    if options.intervals:
        spread = bootstrap({model.name: model.predictions for model in models}, known, seed=options.seed)
    results = [_result(model, known, shift, spread) for model in models]
    failed = check_gates(gates, results)
    return EvaluationResult(
        data=data,
        ood=dict(ood),
        environment=environment,
        latency_batch=latency_batch,
        resampling=None if spread is None else Resampling(resamples=spread.resamples, seed=options.seed),
        models=tuple(results),
        shift=tuple(shift),
        failed_gates=failed,
        passed_gates=passed_gates(gates, results, failed),
    )


def summary_of(dataset: Dataset) -> DataSummary:
    """What the result says about a set."""
    classes = None if dataset.class_names is None else len(dataset.class_names)
    return DataSummary(
        reference=dataset.reference, fingerprint=dataset.fingerprint, samples=len(dataset), classes=classes
    )


def _result(
    model: Evaluated, known: Mapping[str, Metric], shift: Sequence[ShiftPoint], spread: Bootstrap | None
) -> ModelResult:
    measured = measure(model.predictions, known.values()) | shift_metrics(shift, model.name)
    return ModelResult(
        name=model.name,
        kind=model.kind,
        reference=model.reference,
        digest=model.digest,
        members=model.members,
        settings=dict(model.settings),
        baseline=model.baseline,
        metrics={name: measurement.value for name, measurement in measured.items()},
        reasons={name: measurement.reason for name, measurement in measured.items() if measurement.reason is not None},
        intervals={} if spread is None else dict(spread.intervals[model.name]),
        differences={} if spread is None else dict(spread.differences.get(model.name, {})),
        cost=model.cost,
        budget=model.budget,
        kept_tokens=model.kept_tokens,
    )
