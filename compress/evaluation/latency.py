"""Latency of several models in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from compress.options import Options

if TYPE_CHECKING:
    import torch


class Latency(Options):
    """Spread of the time of one call, in milliseconds."""

    median_ms: float = Field(ge=0, description="Median, ms.")
    q25_ms: float = Field(ge=0, description="Lower quartile, ms.")
    q75_ms: float = Field(ge=0, description="Upper quartile, ms.")
    n: int = Field(ge=1, description="Timed calls, after the warm-up.")
    device: str = Field(description="Device whose queue was synchronised before and after each call.")
    threads: int = Field(ge=1, description="CPU threads of one operation.")

    def overlaps(self, other: Latency) -> bool:
        """Whether the quartile ranges overlap, so that the order of the two medians may be noise."""
        return self.q25_ms <= other.q75_ms and other.q25_ms <= self.q75_ms


def measure_latency(
    functions: Mapping[str, Callable[[], object]],
    *,
    device: torch.device | str = "cpu",
    warmup: int = 3,
    repeats: int = 20,
) -> dict[str, Latency]:
    """Time calls without arguments, interleaved: every round calls each function once.

    A machine that slows down or is shared for a while then slows all models and not the one whose turn it was. The
    order rotates from round to round, as the first call after another model finds other data in the caches.

    Args:
        functions: by name, each one forward pass on prepared inputs.
        device: where they compute; an accelerator is synchronised before and after each call.
        warmup: rounds that are not timed.
        repeats: rounds that are.
    """
    import torch

    place = torch.device(device)
    names = list(functions)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warmup + repeats):
        shift = turn % max(1, len(names))
        for name in names[shift:] + names[:shift]:
            _synchronise(place)
            start = time.perf_counter()
            functions[name]()
            _synchronise(place)
            if turn >= warmup:
                seconds[name].append(time.perf_counter() - start)
    quartiles = torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)
    spread = {}
    for name, times in seconds.items():
        low, median, high = torch.quantile(torch.tensor(times, dtype=torch.float64) * 1000, quartiles).tolist()
        spread[name] = Latency(
            median_ms=median,
            q25_ms=low,
            q75_ms=high,
            n=len(times),
            device=str(place),
            threads=torch.get_num_threads(),
        )
    return spread


def _synchronise(device: torch.device) -> None:
    import torch

    if device.type != "cpu":
        torch.accelerator.synchronize(device)
