"""Options of the ``budget`` stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from compress.tuning.options import Training


class Budget(Training):
    """Give every input as many attention heads as it needs, and train the model for it."""

    metric: str = Field(
        "cls/accuracy", description="Metric of eval that is measured before and after; the last weights are kept."
    )
    evaluate_steps: int | None = Field(
        None, ge=1, description="Refused: a checkpoint would be chosen, but budgets are right only after the last step."
    )
    patience: int | None = Field(None, ge=1, description="Refused, for the same reason.")
    min: float = Field(0.1, ge=0.0, le=1.0, description="Budgets below this share of the heads are raised.")
    max: float = Field(0.5, gt=0.0, le=1.0, description="Budgets above this share of the heads are lowered.")
    train: Literal["all", "predictor"] = Field(
        "all", description="What learns: all weights, or predictors and scorers alone."
    )
    calibrate_to: float | None = Field(
        None, gt=0.0, le=1.0, description="Shift the predictors after training until this share of the heads runs."
    )
    predictor_lr: float = Field(2e-3, gt=0.0, description="Highest learning rate of predictors and scorers.")
    budget_weight: float = Field(
        2.0, ge=0.0, allow_inf_nan=False, description="Weight of the squared excess beyond min and max."
    )
    entropy_weight: float = Field(
        0.02,
        ge=0.0,
        allow_inf_nan=False,
        description="Weight of the entropy of heads, which is first raised, then lowered.",
    )
    soft: float = Field(
        0.5, ge=0.0, le=1.0, description="Share of the training in which all heads run, weighted; then the chosen ones."
    )
    head_temperature: float = Field(1.0, gt=0.0, description="Temperature of the softmax over heads at the end.")
    head_temperature_start: float = Field(2.0, gt=0.0, description="The same at the start.")
    hidden: int = Field(64, ge=1, description="Width of the hidden layer of the budget predictors.")
    choice: Literal["learned", "random"] = Field(
        "learned", description="Which heads run: the most relevant ones, or random ones (an ablation)."
    )
    fixed: float | None = Field(
        None, gt=0.0, le=1.0, description="The same budget for every input instead of a predicted one (an ablation)."
    )

    @model_validator(mode="after")
    def _possible(self) -> Budget:
        if self.min > self.max:
            raise ValueError(f"--min {self.min:g} is above --max {self.max:g}; lower --min or raise --max")
        if self.fixed is not None and self.calibrate_to is not None:
            raise ValueError("a fixed budget has no predictor that calibrate_to could shift")
        for name in ("evaluate_steps", "patience"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} chooses among checkpoints, but budgets are right only after the last step")
        return self
