"""An evaluation of stored predictions: metrics, intervals, gates, ensembles and the report, without any model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from compress.data.base import Dataset, given_dataset
from compress.data.labels import align_labels
from compress.errors import DataError
from compress.evaluation.baselines.specification import Baseline
from compress.evaluation.environment import current_environment
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
from compress.evaluation.predictions import Predictions
from compress.evaluation.report.folder import check_report_folder
from compress.evaluation.result import EvaluationResult
from compress.evaluation.shift import shift_point
from compress.evaluation.stored.read import PredictionReader, read_predictions
from compress.evaluation.stored.schema import TEST, StoredPredictions
from compress.evaluation.stored.selection import Selected, select_stored
from compress.evaluation.summary import Evaluated, summarise

DEVICE = "stored predictions"


def evaluate_stored(
    folder: str | Path,
    models: Mapping[str, str | Baseline] | None = None,
    *,
    data: str | Dataset | None = None,
    options: Evaluate | None = None,
    report: str | Path | None = None,
) -> EvaluationResult:
    """Evaluate again what ``evaluate(..., predictions=folder)`` kept.

    The figures are those of the first evaluation, to the last bit. Time and memory are not known; of ``options``, only
    the bootstrap and the gates count.

    Args:
        folder: the predictions, or the folder of a recipe's eval stage.
        models: by name, the name of a stored model or a baseline made of such (``"deep_ensemble:a,b"``,
            ``"pruned:members"``); None for every stored model. The first is what the others are compared with.
        data: the test set, for the inputs that a report shows; without it the report shows none.
        options: see ``Evaluate``.
        report: folder for a page with pictures.

    Raises:
        UsageError: an unknown model or metric.
        ArtifactError: the folder is damaged or holds no predictions.
        DataError: ``data`` is not the set that was predicted.
    """
    if report is not None:
        check_report_folder(Path(report))
    evaluation = run_stored(folder, models, data=data, options=options)
    if report is not None:
        from compress.evaluation.report.write import write_report

        write_report(evaluation, Path(report))
    return evaluation.result


def run_stored(
    folder: str | Path,
    models: Mapping[str, str | Baseline] | None = None,
    *,
    data: str | Dataset | None = None,
    options: Evaluate | None = None,
) -> Evaluation:
    """``evaluate_stored`` without a report, with the evidence that ``write_report`` needs."""
    options = options or Evaluate()
    reader = read_predictions(Path(folder))
    stored = reader.description
    corruptions = tuple(dict.fromkeys(corruption for corruption, _ in stored.shifts))
    known = catalogue(stored.ood, corruptions)
    selected = select_stored(stored, models)
    gates = parse_gates(options.fail_if, metrics=known, models=[row.name for row in selected])
    test = None if data is None else _same(data, stored)
    found = [_evaluated(row, reader) for row in selected]
    shift = tuple(
        shift_point(row.name, corruption, severity, reader.columns(f"shift/{corruption}/{severity}", row.parts))
        for corruption, severity in stored.shifts
        for row in selected
    )
    environment = current_environment(torch.device("cpu"), stored.dtype).model_copy(update={"device": DEVICE})
    result = summarise(
        found,
        data=stored.sets[TEST],
        ood=stored.ood,
        shift=shift,
        known=known,
        gates=gates,
        options=options,
        environment=environment,
        latency_batch=None,
    )
    heads = {model.name: model.original_heads for model in found}
    return Evaluation(result, {model.name: model.predictions for model in found}, test, original_heads=heads)


def _evaluated(row: Selected, reader: PredictionReader) -> Evaluated:
    outside = {name: reader.columns(f"ood/{name}", row.parts) for name in reader.description.ood}
    predictions = Predictions(reader.columns(TEST, row.parts), outside, row.kept_heads, row.branch_layer)
    alone = len(row.models) == 1 and row.kind == row.models[0].kind
    return Evaluated(
        name=row.name,
        kind=row.kind,
        predictions=predictions,
        cost=row.cost,
        digest=row.models[0].digest if alone else None,
        members=row.members,
        baseline=row.baseline,
        settings=row.models[0].settings if alone else {},
        original_heads=row.models[0].original_heads,
        budget=row.models[0].budget if alone else None,
        kept_tokens=row.models[0].kept_tokens if alone else None,
    )


def _same(data: str | Dataset, stored: StoredPredictions) -> Dataset:
    """The test set, if it is the one that was predicted."""
    dataset = given_dataset(data)
    if dataset.fingerprint != stored.sets[TEST].fingerprint:
        raise DataError(
            "is not the set that was predicted", where=dataset.reference, fix="name the same data, or leave it out"
        )
    return align_labels(dataset, stored.labels)
