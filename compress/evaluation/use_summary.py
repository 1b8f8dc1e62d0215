"""Heads and tokens that the evaluated inputs were given, as figures of the result."""

from __future__ import annotations

from pydantic import Field, FiniteFloat

from compress.options import Options

HISTOGRAM_BINS = 20


class ShareSummary(Options):
    """A share in [0, 1] over the evaluated inputs."""

    mean: FiniteFloat = Field(ge=0, le=1, description="Mean over the inputs.")
    p05: FiniteFloat = Field(ge=0, le=1, description="5th percentile over the inputs.")
    p95: FiniteFloat = Field(ge=0, le=1, description="95th percentile over the inputs.")
    histogram: tuple[int, ...] = Field(
        description=f"Inputs per bin of a {HISTOGRAM_BINS}th; a bin holds its lower end, the last also its upper one."
    )
    layers: tuple[FiniteFloat, ...] = Field(description="Mean per layer, in the order in which they run.")
