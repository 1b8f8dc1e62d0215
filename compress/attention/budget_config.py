"""How a model chooses, for every input, how many heads and which ones run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compress.options import Options

HeadChoice = Literal["learned", "random"]


class BudgetConfig(Options):
    """The budgets of a model, without their weights.

    Source: BudgetFormer, arXiv 2604.22583.
    """

    hidden: int = Field(64, ge=1, description="Width of the hidden layer of the budget predictors.")
    temperature: float = Field(
        1.0, gt=0.0, allow_inf_nan=False, description="Temperature of the softmax over heads, after training."
    )
    choice: HeadChoice = Field(
        "learned", description="Which heads run: the most relevant ones, or ones drawn from the input (an ablation)."
    )
    fixed: float | None = Field(
        None, gt=0.0, le=1.0, description="The same budget for every input instead of a predicted one (an ablation)."
    )
