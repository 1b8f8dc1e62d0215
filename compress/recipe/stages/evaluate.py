"""The ``eval`` stage: the newest artifact beside the recipe's own model and the separate members."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator

from compress.artifact.durable import read_failure, write_bytes
from compress.artifact.folder import new_folder
from compress.data.corruptions.registry import possible_corruptions
from compress.errors import ArtifactError, RecipeError
from compress.evaluation.baselines.specification import Baseline
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
from compress.options import Options
from compress.recipe.schema import DataSources
from compress.recipe.stages.base import (
    FOREIGN_ROLE,
    RECIPE_MODEL_LABEL,
    Kind,
    PlannedModel,
    Stage,
    StageInputs,
    StageReport,
    required_reference,
)

if TYPE_CHECKING:
    from compress.evaluation.evaluate import Given
    from compress.evaluation.result import EvaluationResult

MEMBERS_LABEL = "members"
DEEP_ENSEMBLE = "deep_ensemble"
OF_MEMBERS = (MEMBERS_LABEL, "pruned")
OF_RECIPE_MODEL = ("mc_dropout", "temperature")
RESULT_NAME = "result.json"
METRICS_NAME = "metrics.json"
REPORT_NAME = "report"
JUNIT_NAME = "junit.xml"


class DeepEnsembleEntry(Options):
    """``{deep_ensemble: [a, b]}`` under ``compare``."""

    deep_ensemble: tuple[str, ...] = Field(min_length=2, description="Models whose probabilities are averaged.")


class EvaluateEntry(Evaluate):
    """The keys of ``eval`` in a recipe: the command's options, and what to compare with."""

    compare: tuple[Literal["single", "members", "pruned", "mc_dropout", "temperature"] | DeepEnsembleEntry, ...] = (
        Field(
            (),
            description=(
                "single: the recipe's own model; members: the separate pruned copies as an ensemble; pruned: the "
                "first of them; mc_dropout, temperature: the recipe's own model with dropout active, or scaled on the "
                "calibration set; {deep_ensemble: [MODEL, MODEL]}: other models, averaged."
            ),
        )
    )
    report: bool = Field(False, description="Write a page with pictures into the stage's folder.")
    predictions: bool = Field(True, description="Keep the logits of every member on every set in the stage's folder.")

    @field_validator("compare")
    @classmethod
    def _one_ensemble(cls, compare: tuple[str | DeepEnsembleEntry, ...]) -> tuple[str | DeepEnsembleEntry, ...]:
        if sum(isinstance(item, DeepEnsembleEntry) for item in compare) > 1:
            raise ValueError("one deep_ensemble is enough; evaluate the others by a second eval stage")
        return compare

    @property
    def words(self) -> tuple[str, ...]:
        """What tables call the models that are compared."""
        return tuple(DEEP_ENSEMBLE if isinstance(item, DeepEnsembleEntry) else item for item in self.compare)

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The models of the Deep Ensemble."""
        return next((item.deep_ensemble for item in self.compare if isinstance(item, DeepEnsembleEntry)), ())


class EvaluateStage(Stage[EvaluateEntry]):
    """See ``compress.evaluation``.

    The artifact holds the metrics and the predictions, which are the same in every run. The full result with latencies,
    which are not, lies beside them in ``result.json`` and is not hashed; so do the gates as JUnit XML.
    """

    options = EvaluateEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model", "members")
    produces: ClassVar[Kind | None] = None
    synonyms: ClassVar[Mapping[str, str]] = {"baselines": "compare", "against": "compare", "gates": "fail_if"}

    def data(self, sources: DataSources, options: EvaluateEntry) -> Mapping[str, str]:
        """The test set and the foreign sets."""
        test = required_reference(sources.test, "test", "which stage eval measures on")
        foreign = {f"{FOREIGN_ROLE}{name}": reference for name, reference in sources.ood.items()}
        if "temperature" not in options.words:
            return {"test": test, **foreign}
        reference = sources.calibration or sources.validation
        fitted_on = required_reference(reference, "calibration", "on which the baseline temperature is fitted")
        return {"test": test, "calibration": fitted_on, **foreign}

    def models(self, options: EvaluateEntry) -> Sequence[str]:
        """The models of the Deep Ensemble."""
        return options.ensemble

    def with_absolute_paths(self, options: EvaluateEntry, absolute: Callable[[str], str]) -> EvaluateEntry:
        """The models of the Deep Ensemble, wherever the command is run."""
        compare = tuple(
            DeepEnsembleEntry(deep_ensemble=tuple(map(absolute, item.deep_ensemble)))
            if isinstance(item, DeepEnsembleEntry)
            else item
            for item in options.compare
        )
        return options.model_copy(update={"compare": compare})

    def check(self, sources: DataSources, options: EvaluateEntry, label: str, earlier: tuple[Kind, ...]) -> None:
        """Gates name metrics and models that exist; members are compared only where there are some."""
        for word in OF_MEMBERS:
            if word in options.words and "members" not in earlier:
                raise RecipeError(
                    f"compare names {word}, but no stage before makes members", fix="put a prune stage before it"
                )
        known = catalogue(sources.ood, possible_corruptions(options.shift))
        parse_gates(options.fail_if, metrics=known, models=[label, *options.words])

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """All compared models, and one layer's activations of a batch for every stream."""
        streams = after.structure.members if after.kind == "model" else 1
        return sum(model.bytes for model in made) + batch_size * streams * after.layer_activations

    def execute(self, inputs: StageInputs, options: EvaluateEntry) -> None:
        """Evaluate, and write the metrics and the result."""
        from compress.evaluation.evaluate import run_evaluation
        from compress.evaluation.junit import junit_xml
        from compress.evaluation.stored.schema import FOLDER
        from compress.evaluation.stored.write import stored_predictions

        sources = inputs.recipe.data
        data = self.data(sources, options)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(new_folder(inputs.target, kind="predictions", stage="eval", overwrite=True))
            store = stack.enter_context(stored_predictions(folder / FOLDER)) if options.predictions else None
            evaluation = run_evaluation(
                self._models(inputs, options),
                data=inputs.open_data(data["test"]),
                ood={name: inputs.open_data(reference, labelled=False) for name, reference in sources.ood.items()},
                options=Evaluate.model_validate({name: getattr(options, name) for name in Evaluate.model_fields}),
                runtime=inputs.recipe.runtime,
                baselines=[name for name in options.words if name != inputs.label],
                calibration=inputs.open_data(data["calibration"]) if "calibration" in data else None,
                store=store,
            )
            write_bytes(folder / METRICS_NAME, _metrics_json(evaluation.result))
        if options.fail_if:
            write_bytes(inputs.target / JUNIT_NAME, junit_xml(evaluation.result))
        if options.report:
            from compress.evaluation.report.write import write_report

            write_report(evaluation, inputs.target / REPORT_NAME)
        # Last: a stage that has no result yet is not complete.
        write_bytes(inputs.target / RESULT_NAME, evaluation.result.to_json().encode())

    def report(self, folder: Path, options: EvaluateEntry) -> StageReport:
        """The stored result."""
        from compress.evaluation.report.folder import PAGE
        from compress.evaluation.result import EvaluationResult

        path = folder / RESULT_NAME
        try:
            result = EvaluationResult.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise read_failure(error, path) from error
        except (ValidationError, UnicodeDecodeError):
            raise ArtifactError("is damaged", where=str(path), fix="run the stage 'eval' again") from None
        failed = tuple(gate.message for gate in result.failed_gates)
        table = result.table()
        if options.report:
            table = f"{table}\n\nreport: {folder / REPORT_NAME / PAGE}"
        return StageReport(table, json.loads(result.to_json()), failed)

    def _models(self, inputs: StageInputs, options: EvaluateEntry) -> dict[str, Given]:
        """What is compared, by name, the reference first."""
        models: dict[str, Given] = {}
        if RECIPE_MODEL_LABEL in options.words or inputs.current is None:
            models[RECIPE_MODEL_LABEL] = inputs.recipe_model()
        if MEMBERS_LABEL in options.words:
            models[MEMBERS_LABEL] = inputs.artifacts["members"]
        if inputs.current is not None:
            models.setdefault(inputs.label, inputs.current)
        for word in options.words:
            if word == "pruned":
                models[word] = Baseline(word, (inputs.artifacts["members"],))
            elif word in OF_RECIPE_MODEL:
                models[word] = Baseline(word, (inputs.recipe_model(),))
            elif word == DEEP_ENSEMBLE:
                models[word] = Baseline(word, options.ensemble)
        return models


def _metrics_json(result: EvaluationResult) -> bytes:
    """What is the same in every run: metrics, intervals and the data they belong to; no costs, no paths."""
    content = {
        "data": result.data.fingerprint,
        "ood": {name: data.fingerprint for name, data in result.ood.items()},
        "models": [
            model.model_dump(mode="json", include={"name", "metrics", "reasons", "intervals", "differences"})
            for model in result.models
        ],
        "shift": [point.model_dump(mode="json") for point in result.shift],
    }
    return (json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()
