from __future__ import annotations

import math

import pytest
import torch

from compress.evaluation import intervals
from compress.evaluation.intervals import bootstrap, percentile_interval
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.predictions import ColumnCollector, Predictions


def predictions(columns_of, seed: int, *, samples: int = 400, skill: float = 1.5, ood: int = 60) -> Predictions:
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(4, (samples,), generator=generator)
    shared = torch.randn(2, samples, 4, generator=generator)
    noise = torch.randn(2, samples, 4, generator=torch.Generator().manual_seed(seed)) * 0.1
    logits = shared + noise + skill * torch.nn.functional.one_hot(labels, 4)
    outside = torch.randn(2, ood, 4, generator=torch.Generator().manual_seed(seed + 1)) * 0.5
    return Predictions(columns_of(logits, labels), {"o": columns_of(outside)} if ood else {})


def test_accuracy_interval_is_the_binomial_one(columns_of) -> None:
    model = predictions(columns_of, 0, samples=900)
    found = bootstrap({"m": model}, catalogue(["o"])).intervals["m"]["cls/accuracy"]
    rate = float(model.test.correct.double().mean())
    error = 1.96 * math.sqrt(rate * (1 - rate) / 900)
    assert found.low == pytest.approx(rate - error, abs=0.006)
    assert found.high == pytest.approx(rate + error, abs=0.006)


def test_intervals_hold_the_estimates(columns_of) -> None:
    model, metrics = predictions(columns_of, 0), catalogue(["o"])
    found, measured = bootstrap({"m": model}, metrics), measure(model, metrics.values())
    headline = {
        "cls/accuracy",
        "cls/nll",
        "cls/brier",
        "cal/ece",
        "sc/aurc",
        "ood/o/auroc",
        "ood/o/fpr95",
        "div/disagreement",
    }
    assert set(found.intervals["m"]) == headline
    for name, interval in found.intervals["m"].items():
        assert interval.low < interval.high
        if name != "cal/ece":  # resampling adds noise to each bin, which the absolute value turns into bias
            assert interval.contains(measured[name].value), name
    assert found.differences == {}


def test_the_seed_decides(columns_of) -> None:
    model, metrics = {"m": predictions(columns_of, 0)}, catalogue(["o"])
    assert bootstrap(model, metrics, seed=3) == bootstrap(model, metrics, seed=3)
    assert bootstrap(model, metrics, seed=3) != bootstrap(model, metrics, seed=4)


def test_draws_in_pieces_and_another_set_change_nothing(columns_of, monkeypatch) -> None:
    with_ood, without = predictions(columns_of, 0), predictions(columns_of, 0, ood=0)
    whole = bootstrap({"m": with_ood}, catalogue(["o"])).intervals["m"]
    monkeypatch.setattr(intervals, "DRAWS_AT_ONCE", 5000)
    assert bootstrap({"m": with_ood}, catalogue(["o"])).intervals["m"] == whole
    alone = bootstrap({"m": without}, catalogue()).intervals["m"]
    assert alone == {name: interval for name, interval in whole.items() if not name.startswith("ood/")}


def test_differences_are_paired(columns_of) -> None:
    """Two models with the same errors differ by less than their single intervals would tell."""
    single, alike = predictions(columns_of, 0), predictions(columns_of, 5)
    worse = predictions(columns_of, 0, skill=0.5)
    found = bootstrap({"single": single, "alike": alike, "worse": worse}, catalogue(["o"]))
    assert set(found.differences) == {"alike", "worse"}
    paired, alone = found.differences["alike"]["cls/nll"], found.intervals["alike"]["cls/nll"]
    assert paired.high - paired.low < (alone.high - alone.low) / 2
    assert found.differences["alike"]["cls/accuracy"].contains(0)
    assert not found.differences["worse"]["cls/accuracy"].contains(0)
    assert found.differences["worse"]["cls/accuracy"].high < 0


def test_a_model_does_not_differ_from_itself(columns_of) -> None:
    model = predictions(columns_of, 0)
    differences = bootstrap({"a": model, "b": model}, catalogue(["o"])).differences["b"]
    assert all(interval.low == interval.high == 0 for interval in differences.values())


def test_what_has_no_value_has_no_interval(columns_of) -> None:
    model = Predictions(columns_of(torch.randn(1, 20, 4)), {"o": ColumnCollector().finish()})
    assert bootstrap({"m": model}, catalogue(["o"])).intervals == {"m": {}}


def test_what_no_resample_changes_has_no_interval(columns_of) -> None:
    """All right of 400 does not say that others are: 100 % to 100 % would be no interval of the accuracy."""
    model = predictions(columns_of, 0, skill=100.0)
    assert bool(model.test.correct.all())
    found = bootstrap({"m": model, "n": model}, catalogue(["o"]))
    assert "cls/accuracy" not in found.intervals["m"]
    assert found.differences["n"]["cls/accuracy"].contains(0)


def test_models_on_other_samples_are_refused(columns_of) -> None:
    first = predictions(columns_of, 0)
    for second in (predictions(columns_of, 0, samples=300), predictions(columns_of, 0, ood=0)):
        with pytest.raises(ValueError, match="models a and b were not evaluated on the same samples"):
            bootstrap({"a": first, "b": second}, catalogue(["o"]))


def test_large_sets_get_fewer_resamples(columns_of, monkeypatch) -> None:
    monkeypatch.setattr(intervals, "DRAWS", 400 * 300)
    assert bootstrap({"m": predictions(columns_of, 0)}, catalogue(["o"])).resamples == 300
    monkeypatch.setattr(intervals, "DRAWS", 1)
    assert bootstrap({"m": predictions(columns_of, 0)}, catalogue(["o"])).resamples == 200


def test_percentiles() -> None:
    interval = percentile_interval(torch.arange(1001, dtype=torch.float64), level=0.9)
    assert (interval.low, interval.high) == pytest.approx((50, 950))
