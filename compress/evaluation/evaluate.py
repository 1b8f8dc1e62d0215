"""The ``eval`` stage: models side by side on one test set and any number of out-of-distribution sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, open_dataset, require_kind
from compress.data.batches import batches
from compress.data.labels import align_labels
from compress.errors import DataError, ModelError
from compress.evaluation.collect import collect
from compress.evaluation.environment import current_environment
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.gates import check_gates, parse_gates
from compress.evaluation.intervals import bootstrap
from compress.evaluation.latency import Latency, measure_latency
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import Metric, catalogue
from compress.evaluation.options import Evaluate
from compress.evaluation.predictions import Predictions
from compress.evaluation.report.folder import check_report_folder
from compress.evaluation.result import Cost, DataSummary, EvaluationResult, Interval, ModelResult, Resampling
from compress.evaluation.subject import Subject, open_subject
from compress.placing import to_device
from compress.runtime import Runtime


def evaluate(
    models: Mapping[str, str | Path | nn.Module],
    *,
    data: str | Dataset,
    ood: Mapping[str, str | Dataset] | None = None,
    options: Evaluate | None = None,
    runtime: Runtime | None = None,
    baselines: Collection[str] = (),
    report: str | Path | None = None,
) -> EvaluationResult:
    """Measure accuracy, calibration, detection of foreign inputs, diversity and cost.

    Args:
        models: by name; an artifact folder, the folder of pruned members (their probabilities are averaged), any
            reference of ``open_model``, or a loaded model. The first one is what the others are compared with.
        data: labelled test set.
        ood: sets that a model should notice, by name; labels are not used.
        options: see ``Evaluate``.
        runtime: device, number format, batch size.
        baselines: names of models that are there for comparison only: gates pass them over.
        report: folder for a page with pictures; an earlier report there is replaced.

    Raises:
        UsageError: a gate that names an unknown metric or model, before anything is computed.
        CompressError: a model, data set or folder that cannot be used.
    """
    if report is not None:
        check_report_folder(Path(report))
    evaluation = run_evaluation(models, data=data, ood=ood, options=options, runtime=runtime, baselines=baselines)
    if report is not None:
        # Matplotlib is imported only where there is something to draw.
        from compress.evaluation.report.write import write_report

        write_report(evaluation, Path(report))
    return evaluation.result


def run_evaluation(
    models: Mapping[str, str | Path | nn.Module],
    *,
    data: str | Dataset,
    ood: Mapping[str, str | Dataset] | None = None,
    options: Evaluate | None = None,
    runtime: Runtime | None = None,
    baselines: Collection[str] = (),
) -> Evaluation:
    """``evaluate`` without a report, with the per-sample evidence that ``write_report`` needs."""
    options, runtime = options or Evaluate(), runtime or Runtime()
    foreign = {name: open_dataset(given) if isinstance(given, str) else given for name, given in (ood or {}).items()}
    known = catalogue(foreign)
    gates = parse_gates(options.fail_if, metrics=known, models=models)
    test = open_dataset(data) if isinstance(data, str) else data
    subjects = [open_subject(name, given, runtime) for name, given in models.items()]
    test = _aligned(test, subjects)
    predictions, lengths = _predict(subjects, test, foreign, runtime)
    spread = bootstrap(predictions, known, seed=options.seed) if options.intervals else None
    timing = _time(subjects, test, options, runtime) if options.latency else {}
    batch = min(options.latency_batch, len(test))
    results = [
        _result(
            subject,
            predictions[subject.name],
            known,
            _cost(subject, lengths[subject.name], timing.get(subject.name), batch),
            {} if spread is None else spread.intervals[subject.name],
            {} if spread is None else spread.differences.get(subject.name, {}),
            baseline=subject.name in baselines,
        )
        for subject in subjects
    ]
    result = EvaluationResult(
        data=_summary(test),
        ood={name: _summary(dataset) for name, dataset in foreign.items()},
        environment=current_environment(runtime.torch_device(), runtime.dtype),
        latency_batch=batch if options.latency else None,
        resampling=None if spread is None else Resampling(resamples=spread.resamples, seed=options.seed),
        models=tuple(results),
        failed_gates=check_gates(gates, results),
    )
    return Evaluation(
        result,
        predictions,
        test,
        original_heads={subject.name: subject.models[0].structure.original_heads for subject in subjects},
        folders={subject.name: subject.folder for subject in subjects if subject.folder is not None},
    )


def _aligned(test: Dataset, subjects: Sequence[Subject]) -> Dataset:
    """The test set with its classes numbered as the models', which must agree."""
    if len(test) == 0:
        raise DataError("the test set is empty", where=test.reference, fix="choose data with at least one sample")
    first = subjects[0].models[0]
    for subject in subjects:
        for model in subject.models:
            require_kind(test, model.config.preprocessing.kind)
            if model.labels != first.labels:
                raise ModelError(
                    f"its labels differ from those of {subjects[0].name}",
                    where=subject.name,
                    fix="compare models of one task",
                )
    return align_labels(test, first.labels)


def _predict(
    subjects: Sequence[Subject], test: Dataset, foreign: Mapping[str, Dataset], runtime: Runtime
) -> tuple[dict[str, Predictions], dict[str, Counter[int]]]:
    predictions, lengths = {}, {}
    for subject in subjects:
        inside = collect(subject, test, runtime, f"{subject.name}: test")
        outside = {
            name: collect(subject, dataset, runtime, f"{subject.name}: {name}").columns
            for name, dataset in foreign.items()
        }
        predictions[subject.name] = Predictions(inside.columns, outside, subject.kept_heads, subject.branch_layer)
        lengths[subject.name] = inside.lengths
    return predictions, lengths


def _time(subjects: Sequence[Subject], test: Dataset, options: Evaluate, runtime: Runtime) -> dict[str, Latency]:
    """Interleaved latencies of one batch of the test set's first samples."""
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    few = range(min(options.latency_batch, len(test)))
    calls = {}
    for subject in subjects:
        batch = next(iter(batches(test, preprocessor(subject.models[0]), batch_size=len(few), indices=few)))
        calls[subject.name] = partial(subject.module, to_device(batch.inputs, device, dtype))
    with torch.inference_mode():
        return measure_latency(calls, device=device)


def _cost(subject: Subject, lengths: Counter[int], latency: Latency | None, batch: int) -> Cost:
    """Parameters, bytes, FLOPs over the evaluated inputs' real lengths, and time."""
    if lengths:
        sizes = sorted(lengths)
        flops = np.repeat([float(subject.flops(size)) for size in sizes], [lengths[size] for size in sizes])
        mean, low, high = float(flops.mean()), float(np.quantile(flops, 0.05)), float(np.quantile(flops, 0.95))
    else:
        mean = low = high = float(subject.flops(None))
    return Cost(
        params=subject.parameters,
        bytes=subject.bytes_on_disk,
        flops=mean,
        flops_p05=low,
        flops_p95=high,
        latency=latency,
        throughput=None if latency is None else batch / latency.median_ms * 1000,
    )


def _result(
    subject: Subject,
    predictions: Predictions,
    known: Mapping[str, Metric],
    cost: Cost,
    intervals: Mapping[str, Interval],
    differences: Mapping[str, Interval],
    *,
    baseline: bool,
) -> ModelResult:
    measured = measure(predictions, known.values())
    return ModelResult(
        name=subject.name,
        kind=subject.kind,
        reference=subject.reference,
        digest=None if subject.manifest is None else subject.manifest.digest,
        members=subject.members,
        baseline=baseline,
        metrics={name: measurement.value for name, measurement in measured.items()},
        reasons={name: measurement.reason for name, measurement in measured.items() if measurement.reason is not None},
        intervals=dict(intervals),
        differences=dict(differences),
        cost=cost,
    )


def _summary(dataset: Dataset) -> DataSummary:
    classes = None if dataset.class_names is None else len(dataset.class_names)
    return DataSummary(
        reference=dataset.reference, fingerprint=dataset.fingerprint, samples=len(dataset), classes=classes
    )
