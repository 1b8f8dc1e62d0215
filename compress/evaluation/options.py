"""Options of the ``eval`` stage."""

from __future__ import annotations

from pydantic import Field

from compress.options import Options


class Evaluate(Options):
    """Accuracy, calibration, out-of-distribution detection, diversity and cost, side by side."""

    latency: bool = Field(True, description="Measure latency (median and quartiles after a warm-up).")
    latency_batch: int = Field(8, ge=1, description="Batch size of the latency measurement.")
    intervals: bool = Field(True, description="Bootstrap 95 % intervals of the headline figures and their differences.")
    seed: int = Field(0, ge=0, description="Seed of the bootstrap.")
    fail_if: tuple[str, ...] = Field((), description='Gate such as "cal/ece > 0.05"; exit code 3 when it holds.')
