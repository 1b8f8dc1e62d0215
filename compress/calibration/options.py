"""Options of the ``calibrate`` stage."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from compress.options import Options
from compress.transformer.config import UncertaintyScore


class Calibrate(Options):
    """A temperature for the logits, and a threshold of uncertainty above which the model should abstain."""

    temperature: bool = Field(True, description="Fit the temperature of the logits.")
    target_coverage: float | None = Field(
        None, gt=0, le=1, description="Share of inputs to answer; fits the threshold of abstention."
    )
    target_risk: float | None = Field(
        None, ge=0, lt=1, description="Share of errors to allow among the answers; fits the threshold of abstention."
    )
    score: UncertaintyScore = Field("max_probability", description="What the threshold of abstention is compared with.")

    # On a field and not on the whole, so that a message names an option.
    @field_validator("target_risk")
    @classmethod
    def _one_target(cls, risk: float | None, others: ValidationInfo) -> float | None:
        coverage = others.data.get("target_coverage")
        if risk is not None and coverage is not None:
            raise ValueError("cannot be combined with a target coverage")
        if risk is None and coverage is None and not others.data.get("temperature", True):
            raise ValueError("without a temperature, a target coverage or a target risk is needed")
        return risk
