"""The ``tune`` stage: a model or a set of members, trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from compress.errors import RecipeError
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import Kind, StageInputs, required_reference
from compress.recipe.stages.training import Teacher, TrainingStage, check_teacher
from compress.tuning.metric import chosen_metric
from compress.tuning.options import Tune

if TYPE_CHECKING:
    from pathlib import Path

    from compress.backbones.source import ModelSource
    from compress.transformer.model import Transformer


class TuneEntry(Tune):
    """The keys of ``tune`` in a recipe: the command's options, and the teacher."""

    teacher: Teacher = None


class TuneStage(TrainingStage[TuneEntry]):
    """See ``compress.tuning``."""

    options = TuneEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model", "members")
    produces: ClassVar[Kind | None] = None
    label = "tuned"
    synonyms: ClassVar[Mapping[str, str]] = {
        "learning_rate": "lr",
        "max_steps": "steps",
        "gradient_accumulation": "accumulate",
        "early_stopping": "patience",
        "warmup_ratio": "warmup",
        "llrd": "layer_decay",
        "distillation": "teacher",
    }

    def made_from(self, kind: Kind) -> Kind | None:
        """A model stays one model, members stay members."""
        return kind

    def data(self, sources: DataSources, options: TuneEntry) -> Mapping[str, str]:
        """The training set, and the validation set if there is one."""
        found = {"train": required_reference(sources.train, "train", "which stage tune learns from")}
        return found if sources.validation is None else {**found, "validation": sources.validation}

    def takes_classes_from_data(self, options: TuneEntry) -> bool:
        """A model from random weights, or one of two towers, answers with the classes that it was trained on."""
        return options.from_scratch or options.objective == "captions"

    def check(self, sources: DataSources, options: TuneEntry, label: str, earlier: tuple[Kind, ...]) -> None:
        """The metric exists; random weights and a teacher go with what the stage starts from."""
        if sources.validation is not None:
            chosen_metric(options.metric, {})
        if options.from_scratch and earlier:
            raise RecipeError(
                "from_scratch throws away what the stages before it made", fix="put the stage first, or leave it out"
            )
        if options.objective == "captions" and earlier:
            raise RecipeError("captions need the recipe's own model with both towers", fix="put the stage first")
        check_teacher(options.teacher, label, earlier)

    def execute(self, inputs: StageInputs, options: TuneEntry) -> None:
        """Train, and write the model or the members."""
        from compress.tuning.tune import tune

        data = self.data(inputs.recipe.data, options)
        validation = data.get("validation")
        tune(
            _start(inputs, options),
            inputs.target,
            data=inputs.open_data(data["train"]),
            validation=None if validation is None else inputs.open_data(validation),
            teacher=inputs.recipe_model() if options.teacher else None,
            options=Tune.model_validate({name: getattr(options, name) for name in Tune.model_fields}),
            runtime=inputs.recipe.runtime,
            overwrite=True,
        )


def _start(inputs: StageInputs, options: TuneEntry) -> str | Path | ModelSource | Transformer:
    """The newest artifact, or the recipe's model: only described where it is not this model that is trained."""
    if inputs.current is not None:
        return inputs.current
    if not options.from_scratch and options.objective == "labels":
        return inputs.recipe_model()
    from compress.opening import artifact_folder, parse_source

    model = inputs.recipe.model
    return model.reference if artifact_folder(model.reference) else parse_source(model.reference, model.details)
