from __future__ import annotations

import sys
import types
from typing import Any, ClassVar

import pytest
import torch

from compress.evaluation import energy
from compress.evaluation.energy import Energy, measure_energy

CPU = torch.device("cpu")


class Tracker:
    """codecarbon's tracker, as far as it is used."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, **settings: Any) -> None:
        Tracker.made.append(settings)
        self.events: list[str] = []

    def start(self) -> None:
        self.events.append("start")

    def stop(self) -> float:
        self.events.append("stop")
        self.final_emissions_data = types.SimpleNamespace(energy_consumed=0.002, emissions=0.0005)
        return 0.0005


@pytest.fixture
def codecarbon(monkeypatch: pytest.MonkeyPatch) -> type[Tracker]:
    Tracker.made.clear()
    monkeypatch.setitem(sys.modules, "codecarbon", types.SimpleNamespace(OfflineEmissionsTracker=Tracker))
    monkeypatch.setattr(energy, "LEAST_SECONDS", 0.0)
    times = iter([0.0, *[-1.0] * 4, 1.0])
    monkeypatch.setattr(energy.time, "perf_counter", lambda: next(times))
    return Tracker


def test_energy_and_co2_per_input(codecarbon: type[Tracker]) -> None:
    calls: list[int] = []
    found = measure_energy(lambda: calls.append(1), 8, CPU, "DEU")
    assert len(calls) == 1 + 4  # one to warm up
    assert found == Energy(pytest.approx(0.002 * 3.6e6 / 32), pytest.approx(0.5 / 32))
    assert codecarbon.made[0]["country_iso_code"] == "DEU"
    assert codecarbon.made[0]["save_to_file"] is False


def test_without_a_country_there_is_no_co2(codecarbon: type[Tracker]) -> None:
    found = measure_energy(lambda: None, 8, CPU)
    assert isinstance(found, Energy)
    assert found.co2_grams is None


def test_without_codecarbon_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    found = measure_energy(lambda: None, 8, CPU)
    assert found == "codecarbon is not installed (pip install 'compress-transformers[energy]')"
