"""Options of the ``eval`` stage."""

from __future__ import annotations

from pydantic import Field, field_validator

from compress.data.corruptions.registry import ALL, CORRUPTIONS
from compress.options import Options
from compress.registry import nearest

SHIFTS = tuple(CORRUPTIONS)


class Evaluate(Options):
    """Accuracy, calibration, out-of-distribution detection, diversity and cost, side by side."""

    latency: bool = Field(True, description="Measure latency (median and quartiles after a warm-up).")
    latency_batch: int = Field(8, ge=1, description="Batch size of the latency measurement.")
    memory: bool = Field(True, description="Measure the peak memory of a forward pass.")
    energy: bool = Field(False, description="Estimate energy per input with codecarbon (the extra 'energy').")
    country: str | None = Field(
        None, pattern="^[A-Z]{3}$", description="ISO code such as FRA whose electricity mix gives the CO2 of energy."
    )
    shift: tuple[str, ...] = Field(
        (), description=f"Corruptions of the test set, at 5 severities each: {', '.join(SHIFTS)}, or all."
    )
    dropout_passes: int = Field(20, ge=2, description="Forward passes of the baseline mc_dropout.")
    dropout_rate: float | None = Field(
        None, gt=0, lt=1, description="Dropout probability of mc_dropout (default: that of the model)."
    )
    budget: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the heads that every input gets, where a model has budgets (default: own).",
    )
    budget_cap: float | None = Field(
        None, gt=0, le=1, description="Largest share of the heads that an input gets, in models with budgets."
    )
    intervals: bool = Field(True, description="Bootstrap 95 % intervals of the headline figures and their differences.")
    seed: int = Field(0, ge=0, description="Seed of the bootstrap, the corruptions and mc_dropout.")
    fail_if: tuple[str, ...] = Field((), description='Gate such as "cal/ece > 0.05"; exit code 3 when it holds.')

    @field_validator("shift", mode="before")
    @classmethod
    def _separate(cls, shift: object) -> object:
        """``noise,blur`` is two corruptions."""
        listed = [shift] if isinstance(shift, str) else shift
        if not isinstance(listed, list | tuple) or not all(isinstance(names, str) for names in listed):
            return shift
        return tuple(name.strip() for names in listed for name in names.split(","))

    @field_validator("shift")
    @classmethod
    def _known(cls, shift: tuple[str, ...]) -> tuple[str, ...]:
        for name in shift:
            if name != ALL and name not in CORRUPTIONS:
                raise ValueError(f"{name!r} is no corruption; {nearest(name, (*SHIFTS, ALL))}")
        return shift
