from __future__ import annotations

import time

import pytest

from compress.evaluation.latency import Latency, measure_latency


def test_calls_are_interleaved_and_warmed_up() -> None:
    calls: list[str] = []
    functions = {name: lambda name=name: calls.append(name) for name in ("a", "b", "c")}
    spread = measure_latency(functions, warmup=2, repeats=4)
    rounds = [calls[start : start + 3] for start in range(0, len(calls), 3)]
    assert len(rounds) == 6
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert {names[0] for names in rounds} == {"a", "b", "c"}
    assert {entry.n for entry in spread.values()} == {4}


def test_the_slow_first_call_does_not_count() -> None:
    slow_calls = iter([0.05])
    spread = measure_latency({"m": lambda: time.sleep(next(slow_calls, 0.0))}, warmup=1, repeats=5)["m"]
    assert spread.median_ms < 20
    assert spread.q25_ms <= spread.median_ms <= spread.q75_ms


def test_a_slower_function_is_slower() -> None:
    spread = measure_latency({"fast": lambda: None, "slow": lambda: time.sleep(0.003)}, warmup=0, repeats=5)
    assert spread["slow"].median_ms > 2.9
    assert spread["slow"].median_ms > spread["fast"].median_ms
    assert not spread["slow"].overlaps(spread["fast"])
    assert spread["slow"].device == "cpu"
    assert spread["slow"].threads >= 1


@pytest.mark.parametrize(
    ("low", "high", "overlaps"), [(3.0, 4.0, False), (1.9, 4.0, True), (0.5, 0.9, False), (2.0, 2.5, True)]
)
def test_overlap_of_quartiles(low, high, overlaps) -> None:
    def spread(q25: float, q75: float) -> Latency:
        return Latency(median_ms=(q25 + q75) / 2, q25_ms=q25, q75_ms=q75, n=5, device="cpu", threads=1)

    assert spread(1.0, 2.0).overlaps(spread(low, high)) is overlaps
    assert spread(low, high).overlaps(spread(1.0, 2.0)) is overlaps
