"""The ``budget`` stage: the newest model with a budget of heads for every input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compress.budgeting.options import Budget
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, StageInputs, required_reference
from compress.recipe.stages.training import Teacher, TrainingStage


class BudgetEntry(Budget):
    """The keys of ``budget`` in a recipe: the command's options, and the teacher."""

    teacher: Teacher = None


class BudgetStage(TrainingStage[BudgetEntry]):
    """See ``compress.budgeting``."""

    options = BudgetEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "model"
    label = "budgeted"
    attaches = True
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
