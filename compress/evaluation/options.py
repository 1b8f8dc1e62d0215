"""Options of the ``eval`` stage."""

from __future__ import annotations

from pydantic import Field

from compress.options import Options


class Evaluate(Options):
    """Accuracy, calibration, out-of-distribution detection, diversity and cost, side by side."""

    latency: bool = Field(True, description="Measure latency (median and quartiles after a warm-up).")
    latency_batch: int = Field(8, ge=1, description="Batch size of the latency measurement.")
    fail_if: tuple[str, ...] = Field((), description='Gate such as "cal/ece > 0.05"; exit code 3 when it holds.')
