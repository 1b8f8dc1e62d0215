"""The ``route`` stage: the newest model with routers in front of some blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, StageInputs, required_reference
from compress.recipe.stages.training import Teacher, TrainingStage
from compress.routing.options import Route
from compress.tuning.metric import chosen_metric


class RouteEntry(Route):
    """The keys of ``route`` in a recipe: the command's options, and the teacher."""

    teacher: Teacher = None


class RouteStage(TrainingStage[RouteEntry]):
    """See ``compress.routing``."""

    options = RouteEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model",)
    produces: ClassVar[Kind | None] = "model"
    label = "routed"
    attaches = True
    synonyms: ClassVar[Mapping[str, str]] = {
        "learning_rate": "lr",
        "max_steps": "steps",
        "layers": "blocks",
        "ratio": "capacity",
        "keep": "capacity",
        "freeze": "train",
    }

    def data(self, sources: DataSources, options: RouteEntry) -> Mapping[str, str]:
        """The training set; the validation set if there is one; the calibration set if blocks are chosen on it."""
        found = {"train": required_reference(sources.train, "train", "which stage route learns from")}
        if sources.validation is not None:
            found["validation"] = sources.validation
        if sources.calibration is not None and "auto" in options.blocks:
            found["calibration"] = sources.calibration
        return found

    def check(self, sources: DataSources, options: RouteEntry, label: str, earlier: tuple[Kind, ...]) -> None:
        """The metric exists."""
        if sources.validation is not None:
            chosen_metric(options.metric, {})

    def execute(self, inputs: StageInputs, options: RouteEntry) -> None:
        """Attach, train, write."""
        from compress.routing.route import route

        opened = {
            role: inputs.open_data(reference) for role, reference in self.data(inputs.recipe.data, options).items()
        }
        route(
            inputs.current or inputs.recipe_model(),
            inputs.target,
            data=opened["train"],
            validation=opened.get("validation"),
            calibration=opened.get("calibration"),
            teacher=inputs.recipe_model() if options.teacher else None,
            options=Route.model_validate({name: getattr(options, name) for name in Route.model_fields}),
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )
