"""The ``eval`` stage: models side by side on one test set and any number of out-of-distribution sets."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torch import nn

from compress.artifact.folder import check_target
from compress.data.base import Dataset, given_dataset, require_kind
from compress.data.corruptions.registry import chosen_corruptions
from compress.data.labels import align_labels
from compress.distributed import processes
from compress.errors import DataError, ModelError, UsageError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.baselines.specification import Baseline
from compress.evaluation.collect import Collected, collect
from compress.evaluation.costs import measure_costs
from compress.evaluation.environment import current_environment
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
from compress.evaluation.predictions import Columns, Predictions
from compress.evaluation.report.folder import check_report_folder
from compress.evaluation.result import EvaluationResult, ShiftPoint
from compress.evaluation.shift import collect_shift
from compress.evaluation.stored.schema import TEST
from compress.evaluation.stored.write import PredictionStore, stored_predictions
from compress.evaluation.subject import Subject
from compress.evaluation.summary import evaluated, summarise, summary_of
from compress.inference.routes import InputRoutes, input_routes
from compress.runtime import Runtime
from compress.transformer.budgets import at_budget
from compress.transformer.model import Transformer

WATCHED = 4
"""Inputs of which the report shows the tokens that pass."""

Given = str | Path | nn.Module | Baseline


def evaluate(
    models: Mapping[str, Given],
    *,
    data: str | Dataset,
    ood: Mapping[str, str | Dataset] | None = None,
    options: Evaluate | None = None,
    runtime: Runtime | None = None,
    baselines: Collection[str] = (),
    calibration: str | Dataset | None = None,
    report: str | Path | None = None,
    predictions: str | Path | None = None,
    overwrite: bool = False,
) -> EvaluationResult:
    """Measure accuracy, calibration, detection of foreign inputs, diversity and cost.

    Args:
        models: by name; an artifact folder, the folder of pruned members (their probabilities are averaged), any
            reference of ``open_model``, a loaded model, or a baseline (``"deep_ensemble:a,b"``, ``"mc_dropout:a"``, see
            ``compress.evaluation.baselines``). The first one is what the others are compared with.
        data: labelled test set.
        ood: sets that a model should notice, by name; labels are not used.
        options: see ``Evaluate``.
        runtime: device, number format, batch size.
        baselines: names of models that are there for comparison only: gates pass them over.
        calibration: labelled set on which the baseline ``temperature`` fits.
        report: folder for a page with pictures; an earlier report there is replaced.
        predictions: folder for the logits of every member on every set, see ``evaluate_stored``.
        overwrite: replace predictions that are there.

    Raises:
        UsageError: a gate that names an unknown metric or model, before anything is computed.
        CompressError: a model, data set or folder that cannot be used.
    """
    if report is not None:
        check_report_folder(Path(report))
    if predictions is not None:
        check_target(Path(predictions), overwrite=overwrite, inputs=_references(models.values()))
    with contextlib.ExitStack() as stack:
        store = None
        if predictions is not None:
            store = stack.enter_context(stored_predictions(Path(predictions), overwrite=overwrite))
        evaluation = run_evaluation(
            models,
            data=data,
            ood=ood,
            options=options,
            runtime=runtime,
            baselines=baselines,
            calibration=calibration,
            store=store,
        )
    if report is not None:
        # Matplotlib is imported only where there is something to draw.
        from compress.evaluation.report.write import write_report

        target = Path(report)
        team = processes((runtime or Runtime()).torch_device())
        team.on_main(lambda: write_report(evaluation, target))
    return evaluation.result


def run_evaluation(
    models: Mapping[str, Given],
    *,
    data: str | Dataset,
    ood: Mapping[str, str | Dataset] | None = None,
    options: Evaluate | None = None,
    runtime: Runtime | None = None,
    baselines: Collection[str] = (),
    calibration: str | Dataset | None = None,
    store: PredictionStore | None = None,
) -> Evaluation:
    """``evaluate`` without a report, with the per-sample evidence that ``write_report`` needs."""
    options, runtime = options or Evaluate(), runtime or Runtime()
    foreign = {name: given_dataset(given) for name, given in (ood or {}).items()}
    test = given_dataset(data)
    corruptions = chosen_corruptions(options.shift, test.kind)
    known = catalogue(foreign, corruptions)
    gates = parse_gates(options.fail_if, metrics=known, models=models)
    opening = Opening(runtime, options, None if calibration is None else given_dataset(calibration))
    subjects = [opening.subject(name, given) for name, given in models.items()]
    test = _aligned(test, subjects)
    running = _Running(subjects, runtime, store)
    with at_budget([model for subject in subjects for model in subject.models], options.budget, options.budget_cap):
        predictions = running.predict(test, foreign)
        shift = running.shift(test, corruptions, options.seed)
        costs = measure_costs(subjects, test, running.collected, options, runtime)
        routes = {subject.name: _watched(subject, test, runtime) for subject in subjects if _is_routed(subject)}
    found = [evaluated(subject, predictions[subject.name], costs[subject.name], baselines) for subject in subjects]
    if store is not None:
        store.finish(found, subjects[0].models[0].labels, runtime.dtype)
    result = summarise(
        found,
        data=summary_of(test),
        ood={name: summary_of(dataset) for name, dataset in foreign.items()},
        shift=shift,
        known=known,
        gates=gates,
        options=options,
        environment=current_environment(runtime.torch_device(), runtime.dtype),
        latency_batch=min(options.latency_batch, len(test)) if options.latency else None,
    )
    return Evaluation(
        result,
        predictions,
        test,
        original_heads={model.name: model.original_heads for model in found},
        folders={subject.name: subject.folder for subject in subjects if subject.folder is not None},
        routes=routes,
    )


def _is_routed(subject: Subject) -> bool:
    return isinstance(subject.module, Transformer) and subject.module.config.routing is not None


def _watched(subject: Subject, test: Dataset, runtime: Runtime) -> list[InputRoutes]:
    """Which tokens of the first inputs pass."""
    return input_routes(subject.models[0], test, range(min(WATCHED, len(test))), runtime)


class _Running:
    """The forward passes of one evaluation.

    Args:
        subjects: the models.
        runtime: device, number format, batch size.
        store: where logits are kept; None when they are not.

    Attributes:
        collected: by the model's name, what running over the test set gave.
    """

    def __init__(self, subjects: Sequence[Subject], runtime: Runtime, store: PredictionStore | None) -> None:
        if store is not None and processes(runtime.torch_device()).count > 1:
            raise UsageError(
                "predictions are kept by a single process", where="--predictions", fix="run without a launcher"
            )
        self._subjects = {subject.name: subject for subject in subjects}
        self._runtime, self._store = runtime, store
        self.collected: dict[str, Collected] = {}

    def predict(self, test: Dataset, foreign: Mapping[str, Dataset]) -> dict[str, Predictions]:
        """The columns of every model on the test set and on the foreign sets."""
        found = {}
        for name, subject in self._subjects.items():
            inside = self._columns(name, TEST, test)
            outside = {key: self._columns(name, f"ood/{key}", dataset) for key, dataset in foreign.items()}
            use = self.collected[name].use
            found[name] = Predictions(inside, outside, subject.kept_heads, subject.branch_layer, use)
        return found

    def shift(self, test: Dataset, corruptions: Iterable[str], seed: int) -> tuple[ShiftPoint, ...]:
        """Accuracy and calibration of every model under every corruption."""
        return collect_shift(list(self._subjects), test, corruptions, self._columns, seed)

    def _columns(self, model: str, name: str, dataset: Dataset) -> Columns:
        rows = None if self._store is None else self._store.rows(model, name, dataset)
        collected = collect(self._subjects[model], dataset, self._runtime, f"{model}: {name}", rows)
        if self._store is not None:
            self._store.identify(name, collected.columns)
        if name == TEST:
            _require_answers(model, collected.columns)
            self.collected[model] = collected
        return collected.columns


def _require_answers(model: str, columns: Columns) -> None:
    """Refuse a model that answers nothing: every figure would be missing."""
    if columns.non_finite and len(columns.non_finite) == len(columns):
        raise ModelError(
            f"the logits of all {len(columns)} inputs of the test set are not finite",
            where=model,
            fix="check the model's weights, or use --dtype float32",
        )


def _references(given: Iterable[Given]) -> Iterator[Given]:
    """The models, those inside a baseline too."""
    for model in given:
        yield from model.models if isinstance(model, Baseline) else [model]


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
                    fix="compare models of one task, or open it with --label for each class",
                )
    return align_labels(test, first.labels)
