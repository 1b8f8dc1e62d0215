from __future__ import annotations

import sys

import pytest
from tiny.pictures import pictures
from tiny.timm_cases import CASES

from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.evaluation.result import ModelResult
from compress.runtime import Runtime
from compress.transformer.cost import count_parameters
from compress.transformer.model import Transformer

CPU = Runtime(device="cpu", batch_size=8)


@pytest.fixture(scope="module")
def model() -> Transformer:
    return CASES["timm plain"]().model


def cost(model: Transformer, **options: object) -> ModelResult:
    chosen = Evaluate.model_validate({"latency": False, "memory": False, "intervals": False, **options})
    return evaluate({"m": model}, data=pictures(4, model.labels), options=chosen, runtime=CPU).models[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_peak_memory_holds_the_weights_at_least(model: Transformer) -> None:
    found = cost(model, memory=True)
    assert found.cost.peak_mb is not None
    assert found.cost.peak_mb >= 4 * count_parameters(model) / 1e6
    assert found.cost.peak_mb < 100
    assert found.cost.latency is None


def test_what_was_not_asked_for_is_null_without_a_reason_of_its_own(model: Transformer) -> None:
    found = cost(model)
    assert (found.cost.peak_mb, found.cost.energy_j, found.cost.reasons) == (None, None, {})
    assert found.value("cost/peak_mb") == (None, "not measured")


def test_energy_that_cannot_be_measured_says_why(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    found = cost(model, energy=True)
    value, reason = found.value("cost/energy_j")
    assert value is None
    assert "pip install" in str(reason)
    assert found.value("cost/co2_g") == (None, reason)


def test_throughput_and_latency_are_of_one_batch(model: Transformer) -> None:
    found = cost(model, latency=True, latency_batch=2)
    assert found.cost.latency is not None
    assert found.cost.throughput == pytest.approx(2 / found.cost.latency.median_ms * 1000)
