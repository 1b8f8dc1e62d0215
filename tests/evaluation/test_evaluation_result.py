from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from compress.errors import UsageError
from compress.evaluation.environment import Environment
from compress.evaluation.gates import FailedGate
from compress.evaluation.latency import Latency
from compress.evaluation.result import Cost, DataSummary, EvaluationResult, Interval, ModelResult, Resampling
from compress.evaluation.table import _quantity, _width


def latency(median: float) -> Latency:
    return Latency(median_ms=median, q25_ms=median * 0.98, q75_ms=median * 1.05, n=20, device="cpu", threads=2)


def entry(name: str, *, members: int = 1, ms: float = 2.3, **changes: Any) -> ModelResult:
    metrics: dict[str, float | None] = {
        "cls/accuracy": 0.974,
        "cls/nll": 0.112,
        "cls/brier": 0.043,
        "cal/ece": 0.021,
        "ood/photos/auroc": 0.951,
        "ood/photos/fpr95": 0.213,
        "div/disagreement": 0.034 if members > 1 else None,
    }
    content: dict[str, Any] = {
        "name": name,
        "kind": "fused",
        "members": members,
        "metrics": metrics,
        "reasons": {} if members > 1 else {"div/disagreement": "needs at least two members"},
        "cost": Cost(params=1_234_567, flops=45_100_000.0, latency=latency(ms)),
    }
    return ModelResult(**content | changes)


def result(*models: ModelResult, **changes: Any) -> EvaluationResult:
    content: dict[str, Any] = {
        "data": DataSummary(reference="builtin:digits#test", fingerprint="ab" * 32, samples=540, classes=10),
        "ood": {"photos": DataSummary(reference="builtin:photos", fingerprint="cd" * 32, samples=200)},
        "environment": Environment(device="cpu", threads=2, dtype="float32", allocator="glibc"),
        "latency_batch": 8,
        "resampling": Resampling(resamples=1000),
        "models": models or (entry("single"), entry("members", members=3, ms=7.1), entry("fused", members=3, ms=2.4)),
    }
    return EvaluationResult(**content | changes)


def test_json_round_trip_and_the_same_bytes() -> None:
    failed = FailedGate(gate="cal/ece > 0.01", model="single", value=0.021, limit=0.01, message="…")
    original = result(failed_gates=(failed,))
    text = original.to_json()
    assert EvaluationResult.from_json(text) == original
    assert EvaluationResult.from_json(text).to_json() == text
    content = json.loads(text)
    assert (content["schema"], content["schema_version"]) == ("compress/eval", 1)
    assert content["models"][0]["metrics"]["div/disagreement"] is None
    assert content["models"][0]["cost"]["latency"]["n"] == 20
    assert "OOD is the positive class" in content["conventions"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_metric_is_nan_or_infinite(value) -> None:
    with pytest.raises(ValidationError):
        entry("m", metrics={"cal/ece": value})


def test_a_null_needs_a_reason() -> None:
    with pytest.raises(ValidationError, match="null without a reason"):
        entry("m", metrics={"cal/ece": None}, reasons={})


def test_other_schemas_and_unknown_keys_are_refused() -> None:
    content = json.loads(result().to_json())
    for change in ({"schema": "other"}, {"schema_version": 2}, {"extra": 1}):
        with pytest.raises(ValidationError):
            EvaluationResult.from_json(json.dumps(content | change))


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValidationError, match="not unique"):
        result(entry("a"), entry("a"))


def test_values_by_name() -> None:
    found = result()
    assert found.value("single", "cal/ece") == 0.021
    assert found.value("fused", "cost/latency_ms") == 2.4
    assert found.value("single", "div/disagreement") is None
    with pytest.raises(UsageError, match="did you mean 'cal/ece'"):
        found.value("single", "cal/ec")
    with pytest.raises(UsageError, match="did you mean 'single'"):
        found.value("singl", "cal/ece")


def test_table_fits_100_columns_in_one_block() -> None:
    lines = result().table().splitlines()
    assert all(_width(line) <= 100 for line in lines)
    assert lines[0].split() == [
        "accuracy",
        "NLL",
        "Brier",
        "ECE",
        "photos",
        "photos",
        "members",
        "params",
        "FLOPs",
        "latency",
        "ms",
        "↓",
    ]
    rows = [line for line in lines if line.startswith(("single", "members", "fused"))]
    assert len(rows) == 3
    assert rows[2].split()[:9] == ["fused", "0.974", "0.112", "0.043", "0.021", "0.951", "0.213", "0.034", "1.23M"]
    assert rows[2].endswith("45.1M  2.40 [2.35–2.52]")
    assert len({_width(row) for row in rows}) == 1


def test_missing_values_have_a_footnote() -> None:
    table = result().table()
    assert "—¹" in table
    assert "¹ needs at least two members" in table.splitlines()


def test_one_footnote_per_reason() -> None:
    empty = {"ood/photos/auroc": None, "ood/photos/fpr95": None, "cls/accuracy": None}
    reasons = {
        "ood/photos/auroc": "the set is empty",
        "ood/photos/fpr95": "the set is empty",
        "cls/accuracy": "no labels",
    }
    table = result(entry("a", metrics=empty, reasons=reasons)).table()
    assert "¹ no labels" in table
    assert table.count("the set is empty") == 1


def test_more_sets_than_fit_continue_in_a_block_with_the_names() -> None:
    sets = {f"set{number}": DataSummary(reference="x", fingerprint="y", samples=1) for number in range(6)}
    lines = result(ood=sets).table().splitlines()
    assert all(_width(line) <= 100 for line in lines)
    assert sum(line.startswith("fused ") for line in lines) == 3
    assert sum(line.count("AUROC ↑  FPR95 ↓") for line in lines) == 6  # the two columns of a set stay together


def test_wide_names_stay_aligned() -> None:
    lines = result(entry("模型"), entry("modèle"), entry("x" * 60)).table().splitlines()
    rows = [line for line in lines if line.startswith(("模型", "modèle", "xxx"))]
    assert len(rows) == 6
    assert len({_width(row) for row in rows[:3]}) == len({_width(row) for row in rows[3:]}) == 1


def test_differences_within_noise_are_said() -> None:
    differences = {
        "cls/accuracy": Interval(low=-0.01, high=0.004),
        "cal/ece": Interval(low=-0.03, high=-0.01),
        "ood/photos/auroc": Interval(low=0.0, high=0.0),
        "ood/photos/fpr95": Interval(low=0.01, high=0.02),
        "div/disagreement": Interval(low=0.01, high=0.02),
    }
    models = (entry("single"), entry("fused", members=3, ms=2.35, differences=differences))
    notes = result(*models).table().replace("\n  ", " ")
    assert "Within noise of single (95% paired bootstrap, 1000 resamples): fused accuracy, photos AUROC." in notes
    assert "Better than single, beyond noise: fused ECE." in notes
    assert "Worse than single, beyond noise: fused photos FPR95." in notes
    assert "disagreement" not in notes.partition("beyond noise")[2]
    assert "Latency within noise of single (quartiles overlap): fused." in notes
    assert models[1].within_noise() == ("cls/accuracy", "ood/photos/auroc")


def test_conventions_are_printed() -> None:
    notes = result().table().replace("\n  ", " ")
    assert "OOD is the positive class" in notes
    assert "latency: batch 8, median of 20" in notes
    assert "cpu, 2 threads, float32, glibc" in notes


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (999.6, "1.00k"),
        (1000, "1.00k"),
        (86_567_656, "86.6M"),
        (999_700, "1.00M"),
        (17.6e9, "17.6G"),
    ],
)
def test_quantities(value, shown) -> None:
    assert _quantity(value) == shown
