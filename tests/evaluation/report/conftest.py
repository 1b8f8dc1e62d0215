"""Evaluations made from logits, without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.evaluation.environment import Environment
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.intervals import bootstrap
from compress.evaluation.latency import Latency
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.predictions import ColumnCollector, Columns, KeptHeads, Predictions
from compress.evaluation.result import Cost, DataSummary, EvaluationResult, ModelResult, Resampling

KEPT: KeptHeads = [[[0, 1, 2, 3]], [[0, 1], [1, 2]], [[0, 3], [2, 3]]]


def columns(logits: Tensor, labels: Tensor | None = None) -> Columns:
    collector = ColumnCollector()
    collector.add(logits, labels, [str(row) for row in range(logits.shape[1])])
    return collector.finish()


def random_logits(members: int, samples: int, classes: int, seed: int, scale: float = 2.0) -> Tensor:
    return torch.randn(members, samples, classes, generator=torch.Generator().manual_seed(seed)) * scale


def build(
    models: Mapping[str, Tensor],
    dataset: Dataset,
    foreign: Mapping[str, Mapping[str, Tensor]] | None = None,
    **changes: Any,
) -> Evaluation:
    """An evaluation of models given as logits ``(M, N, K)`` on the test set, and ``(M, N', K)`` on foreign sets."""
    labels = torch.tensor(list(dataset.labels or ()))
    classes = next(iter(models.values())).shape[-1]
    predictions = {
        name: Predictions(
            columns(logits, labels),
            {key: columns(sets[name]) for key, sets in (foreign or {}).items()},
            KEPT if len(logits) > 1 else [[[0, 1, 2, 3]]] * 3,
            1 if len(logits) > 1 else 3,
        )
        for name, logits in models.items()
    }
    known = catalogue(foreign or {})
    spread = bootstrap(predictions, known) if len(dataset) else None
    results = []
    for place, (name, logits) in enumerate(models.items()):
        measured = measure(predictions[name], known.values())
        milliseconds = 2.0 + place
        results.append(
            ModelResult(
                name=name,
                kind="fused" if len(logits) > 1 else "single",
                members=len(logits),
                metrics={key: found.value for key, found in measured.items()},
                reasons={key: found.reason for key, found in measured.items() if found.reason is not None},
                intervals={} if spread is None else dict(spread.intervals[name]),
                differences={} if spread is None else dict(spread.differences.get(name, {})),
                cost=Cost(
                    params=1_200_000,
                    flops=4.5e7 * (1 + place),
                    latency=Latency(
                        median_ms=milliseconds,
                        q25_ms=milliseconds * 0.9,
                        q75_ms=milliseconds * 1.1,
                        n=20,
                        device="cpu",
                        threads=1,
                    ),
                ),
            )
        )
    content: dict[str, Any] = {
        "data": DataSummary(reference=dataset.reference, fingerprint="ab", samples=len(dataset), classes=classes),
        "ood": {key: DataSummary(reference=key, fingerprint="cd", samples=9) for key in foreign or {}},
        "environment": Environment(device="cpu", threads=1, dtype="float32", allocator="glibc"),
        "latency_batch": 8,
        "resampling": Resampling(resamples=200) if spread else None,
        "models": tuple(results),
    }
    heads = dict.fromkeys(models, (4, 4, 4))
    return Evaluation(EvaluationResult(**content | changes), predictions, dataset, original_heads=heads)


def texts(count: int, classes: int) -> SequenceDataset:
    names = [f"class {number}" for number in range(classes)]
    labels = [number % classes for number in range(count)]
    return SequenceDataset([f"sentence {number}" for number in range(count)], "text", class_names=names, labels=labels)


@pytest.fixture(scope="session")
def evaluation_of() -> Callable[..., Evaluation]:
    """``evaluation_of(models, dataset, foreign=None, **result_changes)``; see ``build``."""
    return build


@pytest.fixture(scope="session")
def logits_of() -> Callable[..., Tensor]:
    """``logits_of(members, samples, classes, seed, scale=2.0)``."""
    return random_logits


@pytest.fixture(scope="session")
def texts_of() -> Callable[[int, int], SequenceDataset]:
    """``texts_of(count, classes)``."""
    return texts


@pytest.fixture(scope="session")
def fused_evaluation() -> Evaluation:
    """Two models, one of them with two members, on forty sentences, with a foreign set."""
    models = {"single": random_logits(1, 40, 3, 0), "fused": random_logits(2, 40, 3, 1)}
    foreign = {"noise": {"single": random_logits(1, 9, 3, 2, 0.5), "fused": random_logits(2, 9, 3, 3, 0.5)}}
    return build(models, texts(40, 3), foreign)
