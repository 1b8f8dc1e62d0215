"""The ``eval`` stage: the newest artifact beside the recipe's own model and the separate members."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, ValidationError

from compress.artifact.durable import read_failure, write_bytes
from compress.artifact.folder import new_folder
from compress.errors import ArtifactError, RecipeError
from compress.evaluation.gates import parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.options import Evaluate
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
    from torch import nn

    from compress.evaluation.result import EvaluationResult

MEMBERS_LABEL = "members"
RESULT_NAME = "result.json"
METRICS_NAME = "metrics.json"
REPORT_NAME = "report"


class EvaluateEntry(Evaluate):
    """The keys of ``eval`` in a recipe: the command's options, and what to compare with."""

    compare: tuple[Literal["single", "members"], ...] = Field(
        (), description="single: the recipe's own model; members: the separate pruned copies as an ensemble."
    )
    report: bool = Field(False, description="Write a page with pictures into the stage's folder.")


class EvaluateStage(Stage[EvaluateEntry]):
    """See ``compress.evaluation``.

    The artifact holds the metrics, which are the same in every run. The full result with latencies, which are not,
    lies beside them in ``result.json`` and is not hashed.
    """

    options = EvaluateEntry
    accepts: ClassVar[tuple[Kind, ...]] = ("model", "members")
    produces: ClassVar[Kind | None] = None
    synonyms: ClassVar[Mapping[str, str]] = {"baselines": "compare", "against": "compare", "gates": "fail_if"}

    def data(self, sources: DataSources, options: EvaluateEntry) -> Mapping[str, str]:
        """The test set and the foreign sets."""
        test = required_reference(sources.test, "test", "which stage eval measures on")
        return {"test": test, **{f"{FOREIGN_ROLE}{name}": reference for name, reference in sources.ood.items()}}

    def check(self, sources: DataSources, options: EvaluateEntry, label: str, earlier: tuple[Kind, ...]) -> None:
        """Gates name metrics and models that exist; members are compared only where there are some."""
        if MEMBERS_LABEL in options.compare and "members" not in earlier:
            raise RecipeError("compare names members, but no stage before makes any", fix="put a prune stage before it")
        parse_gates(options.fail_if, metrics=catalogue(sources.ood), models=[label, *options.compare])

    def peak_memory(
        self, before: PlannedModel, after: PlannedModel, made: Sequence[PlannedModel], batch_size: int
    ) -> int:
        """All compared models, and one layer's activations of a batch for every stream."""
        streams = after.structure.members if after.kind == "model" else 1
        return sum(model.bytes for model in made) + batch_size * streams * after.layer_activations

    def execute(self, inputs: StageInputs, options: EvaluateEntry) -> None:
        """Evaluate, and write the metrics and the result."""
        from compress.evaluation.evaluate import run_evaluation

        sources = inputs.recipe.data
        evaluation = run_evaluation(
            self._models(inputs, options),
            data=inputs.open_data(self.data(sources, options)["test"]),
            ood={name: inputs.open_data(reference, labelled=False) for name, reference in sources.ood.items()},
            options=Evaluate.model_validate({name: getattr(options, name) for name in Evaluate.model_fields}),
            runtime=inputs.recipe.runtime,
            baselines=[name for name in options.compare if name != inputs.label],
        )
        with new_folder(inputs.target, kind="predictions", stage="eval", overwrite=True) as folder:
            write_bytes(folder / METRICS_NAME, _metrics_json(evaluation.result))
        if options.report:
            from compress.evaluation.report.write import write_report

            write_report(evaluation, inputs.target / REPORT_NAME)
        # Last: a stage that has no result yet is not complete.
        write_bytes(inputs.target / RESULT_NAME, evaluation.result.to_json().encode())

    def report(self, folder: Path, options: EvaluateEntry) -> StageReport:
        """The stored result."""
        from compress.evaluation.result import EvaluationResult

        path = folder / RESULT_NAME
        try:
            result = EvaluationResult.from_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise read_failure(error, path) from error
        except (ValidationError, UnicodeDecodeError):
            raise ArtifactError("is damaged", where=str(path), fix="run the stage 'eval' again") from None
        failed = tuple(gate.message for gate in result.failed_gates)
        return StageReport(result.table(), json.loads(result.to_json()), failed)

    def _models(self, inputs: StageInputs, options: EvaluateEntry) -> dict[str, str | Path | nn.Module]:
        """What is compared, by name, the reference first."""
        models: dict[str, str | Path | nn.Module] = {}
        if RECIPE_MODEL_LABEL in options.compare or inputs.current is None:
            models[RECIPE_MODEL_LABEL] = inputs.recipe_model()
        if MEMBERS_LABEL in options.compare:
            models[MEMBERS_LABEL] = inputs.artifacts["members"]
        if inputs.current is not None:
            models.setdefault(inputs.label, inputs.current)
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
    }
    return (json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode()
