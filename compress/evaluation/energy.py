"""Energy and CO₂ of forward passes, estimated by codecarbon (the extra ``energy``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

LEAST_SECONDS = 5.0
JOULE_PER_KWH = 3.6e6
# codecarbon wants a country; where none was given, its mix is not used.
ANY_COUNTRY = "FRA"


@dataclass(frozen=True)
class Energy:
    """Per input.

    Attributes:
        joules: of processor, memory and accelerator.
        co2_grams: from the electricity mix of a country; None when no country was given.
    """

    joules: float
    co2_grams: float | None


def measure_energy(
    call: Callable[[], object], inputs: int, device: torch.device, country: str | None = None
) -> Energy | str:
    """Run a forward pass for at least five seconds and divide.

    codecarbon reads the counters of the processor (RAPL) and of NVIDIA devices where it may; elsewhere it estimates the
    processor's power from its model and load, and memory from its size. So these are figures to compare on one machine,
    not to bill. No network is used.

    Args:
        call: the forward pass on prepared inputs.
        inputs: how many these are.
        device: where it computes.
        country: three-letter ISO code for the CO₂.

    Returns:
        The figures, or the reason why there are none.
    """
    try:
        from codecarbon import OfflineEmissionsTracker
    except ImportError:
        return "codecarbon is not installed (pip install 'compress-transformers[energy]')"
    tracker = OfflineEmissionsTracker(
        country_iso_code=country or ANY_COUNTRY,
        tracking_mode="process",
        measure_power_secs=1,
        save_to_file=False,
        allow_multiple_runs=True,
        log_level="critical",
    )
    call()
    passes = 0
    tracker.start()
    start = time.perf_counter()
    try:
        while time.perf_counter() - start < LEAST_SECONDS:
            call()
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
            passes += 1
    finally:
        tracker.stop()
    found = tracker.final_emissions_data
    share = 1 / (passes * inputs)
    co2 = None if country is None else found.emissions * 1000 * share
    return Energy(found.energy_consumed * JOULE_PER_KWH * share, co2)
