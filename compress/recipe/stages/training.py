"""What the stages that train have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import Field

from compress.errors import RecipeError
from compress.options import Options
from compress.recipe.stages.base import RECIPE_MODEL_LABEL, Kind, PlannedModel, Stage

COPIES_IN_TRAINING = 4
"""Weights, gradients and the two moments of Adam."""

Teacher = Annotated[
    Literal["single"] | None,
    Field(description="single: the recipe's own model, whose predictions are learned too."),
]
"""The key ``teacher``."""

O = TypeVar("O", bound=Options)  # noqa: E741


class TrainingStage(Stage[O]):
    """A stage that trains one model, or the members of a set one after the other."""

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """One model in training, and all layers' activations of a batch for every stream."""
        separate = after.structure.members if after.kind == "members" else 1
        streams = 1 if after.kind == "members" else after.structure.members
        activations = batch_size * after.layers * streams * after.layer_activations
        return COPIES_IN_TRAINING * after.bytes // separate + activations


def check_teacher(teacher: Teacher, label: str, earlier: tuple[Kind, ...]) -> None:
    """Raise ``RecipeError`` when the recipe's own model would be its own teacher; arguments as of ``Stage.check``."""
    if teacher is not None and not earlier and label == RECIPE_MODEL_LABEL:
        raise RecipeError("a model cannot be its own teacher", fix="leave teacher out, or prune before")
