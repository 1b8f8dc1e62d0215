"""The ``budget`` stage: the newest model with a budget of heads for every input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from compress.budgeting.options import Budget
from compress.errors import RecipeError
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import RECIPE_MODEL_LABEL, Kind, PlannedModel, Stage, StageInputs, required_reference

COPIES_IN_TRAINING = 4
"""Weights, gradients and the two moments of Adam."""


class BudgetEntry(Budget):
    """The keys of ``budget`` in a recipe: the command's options, and the teacher."""

    teacher: Literal["single"] | None = Field(
        None, description="single: the recipe's own model, whose predictions are learned too."
    )


class BudgetStage(Stage[BudgetEntry]):
    """See ``compress.budgeting``."""

    options = BudgetEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "model"
    label = "budgeted"
    synonyms: ClassVar[Mapping[str, str]] = {
        "learning_rate": "lr",
        "max_steps": "steps",
        "budget": "calibrate_to",
        "s_min": "min",
        "s_max": "max",
        "freeze": "train",
    }

    def data(self, sources: DataSources, options: BudgetEntry) -> Mapping[str, str]:
        """The training set, and the calibration and validation sets if there are any."""
        found = {"train": required_reference(sources.train, "train", "which stage budget learns from")}
        further = {"calibration": sources.calibration, "validation": sources.validation}
        return found | {role: reference for role, reference in further.items() if reference is not None}

    def check(self, sources: DataSources, options: BudgetEntry, label: str, earlier: tuple[Kind, ...]) -> None:
        """A model is not its own teacher."""
        if options.teacher is not None and not earlier and label == RECIPE_MODEL_LABEL:
            raise RecipeError("a model cannot be its own teacher", fix="leave teacher out, or prune before")

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """The model in training, and all layers' activations of a batch for every stream."""
        activations = batch_size * after.layers * after.structure.members * after.layer_activations
        return COPIES_IN_TRAINING * after.bytes + activations

    def execute(self, inputs: StageInputs, options: BudgetEntry) -> None:
        """Attach, train, write."""
        from compress.budgeting.budget import budget

        opened = {
            role: inputs.open_data(reference) for role, reference in self.data(inputs.recipe.data, options).items()
        }
        budget(
            inputs.current or inputs.recipe_model(),
            inputs.target,
            data=opened["train"],
            validation=opened.get("validation"),
            calibration=opened.get("calibration"),
            teacher=inputs.recipe_model() if options.teacher else None,
            options=Budget.model_validate({name: getattr(options, name) for name in Budget.model_fields}),
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )
