"""Everything a report shows, as data: the schema of ``report.json``, version 1."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Literal, ParamSpec, TypeVar

from pydantic import ConfigDict, Field

from compress.errors import ArtifactError
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.report.branching import BranchChoice, measure_branching
from compress.evaluation.report.budgets import BudgetUse, measure_budget_use
from compress.evaluation.report.detection import DetectionOfSet, measure_detection, score_edges
from compress.evaluation.report.diversity import Diversity, measure_diversity
from compress.evaluation.report.examples import Examples, gather_examples
from compress.evaluation.report.heads import HeadMap, measure_heads
from compress.evaluation.report.reliability import Reliability, measure_reliability
from compress.evaluation.report.risk_coverage import RiskCoverageCurve, measure_risk_coverage
from compress.evaluation.report.routes import RouteMap, gather_routes
from compress.evaluation.report.tradeoff import Tradeoff, measure_tradeoffs
from compress.evaluation.result import EvaluationResult
from compress.evaluation.unavailable import UnavailableMetricError
from compress.options import Options

P = ParamSpec("P")
T = TypeVar("T")


class Gap(Options):
    """Why something is not shown."""

    what: str
    reason: str


class ReportContent(Options):
    """The result, and the data of every picture. The page is made from this and nothing else."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/report"] = Field("compress/report", alias="schema")
    schema_version: Literal[1] = 1
    result: EvaluationResult
    subject: str = Field(description="The model that the report is about: the last one that is no baseline.")
    reliability: tuple[Reliability, ...] = ()
    risk_coverage: tuple[RiskCoverageCurve, ...] = ()
    detection: tuple[DetectionOfSet, ...] = Field((), description="Set by set, within a set model by model.")
    heads: tuple[HeadMap, ...] = ()
    diversity: tuple[Diversity, ...] = ()
    branching: tuple[BranchChoice, ...] = Field((), description="Of models whose branch layer was found.")
    tradeoffs: tuple[Tradeoff, ...] = ()
    budgets: tuple[BudgetUse, ...] = Field((), description="Of models with budgets.")
    routes: tuple[RouteMap, ...] = Field((), description="Of models with routers, a few inputs each.")
    examples: Examples | None = None
    gaps: tuple[Gap, ...] = Field((), description="What could not be shown.")

    def to_json(self) -> str:
        """The content as JSON, with a final newline; the same content gives the same bytes."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> ReportContent:
        """Read what ``to_json`` wrote; raises pydantic's ``ValidationError`` when it is something else."""
        return cls.model_validate_json(text)


def gather_content(evaluation: Evaluation) -> ReportContent:
    """Reduce an evaluation to what the report shows; a few inputs are read again from the test set."""
    result, models, gaps = evaluation.result, evaluation.predictions, list[Gap]()
    edges = score_edges(predictions.test for predictions in models.values())
    subject = next((model.name for model in reversed(result.models) if not model.baseline), result.models[-1].name)
    return ReportContent(
        result=result,
        subject=subject,
        reliability=tuple(
            found
            for name, predictions in models.items()
            for found in _attempt(gaps, f"reliability of {name}", measure_reliability, name, predictions.test)
        ),
        risk_coverage=tuple(
            found
            for name, predictions in models.items()
            for found in _attempt(gaps, f"risk and coverage of {name}", measure_risk_coverage, name, predictions.test)
        ),
        detection=tuple(
            found
            for dataset in result.ood
            for name, predictions in models.items()
            for found in _attempt(
                gaps,
                f"detection of {dataset} by {name}",
                measure_detection,
                name,
                dataset,
                predictions.test,
                predictions.ood[dataset],
                edges,
            )
        ),
        heads=measure_heads(evaluation),
        diversity=tuple(
            found
            for name, predictions in models.items()
            if predictions.test.members > 1
            for found in _attempt(gaps, f"diversity of {name}", measure_diversity, name, predictions)
        ),
        branching=tuple(
            chain.from_iterable(_attempt(gaps, "the choice of branch layers", measure_branching, evaluation))
        ),
        tradeoffs=measure_tradeoffs(result),
        budgets=tuple(_budgets(gaps, evaluation)),
        routes=gather_routes(evaluation),
        examples=gather_examples(subject, models, evaluation.test),
        gaps=tuple(gaps),
    )


def _budgets(gaps: list[Gap], evaluation: Evaluation) -> Iterator[BudgetUse]:
    """Of the models with budgets; the difficulty of an input is its loss under the first model."""
    models = evaluation.predictions
    reference = evaluation.result.models[0].name
    for name, predictions in models.items():
        if predictions.use is not None and predictions.use.heads is not None:
            what = f"budgets of {name}"
            yield from _attempt(
                gaps, what, measure_budget_use, name, predictions.use, reference, models[reference].test, evaluation
            )


def _attempt(gaps: list[Gap], what: str, measure: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Iterator[T]:
    """What ``measure`` returns, or nothing and a gap with the reason."""
    try:
        yield measure(*arguments, **named)
    except (UnavailableMetricError, ArtifactError) as unavailable:
        gaps.append(Gap(what=what, reason=str(unavailable)))
