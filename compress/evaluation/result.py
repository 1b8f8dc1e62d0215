"""The result of an evaluation: the schema of ``--json``, version 1."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from compress.errors import UsageError
from compress.evaluation.environment import Environment
from compress.evaluation.gates import FailedGate, PassedGate
from compress.evaluation.latency import Latency
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.use_summary import ShareSummary
from compress.options import Options
from compress.registry import nearest

CONVENTIONS = (
    "Probabilities are the mean of the members' probabilities; metrics are computed in float64. "
    "ECE: 15 equal-width bins, the last closed. OOD is the positive class and scores are high for OOD; "
    "the score is 1 - maximum probability unless named; FPR95 is the false-positive rate at the first threshold "
    "with TPR >= 0.95. NLL in nats; FLOPs per input, 1 MAC = 2 FLOPs. "
    "A metric that cannot be computed is null, with the reason."
)


class Interval(Options):
    """A percentile bootstrap interval."""

    low: FiniteFloat = Field(description="Lower end, in the unit of the figure.")
    high: FiniteFloat = Field(description="Upper end.")

    def contains(self, value: float) -> bool:
        """Whether the value lies in the closed interval."""
        return self.low <= value <= self.high


class DataSummary(Options):
    """The set that was evaluated."""

    reference: str = Field(description="As the user wrote it.")
    fingerprint: str = Field(description="sha256 of content and labels.")
    samples: int = Field(ge=0, description="Number of samples.")
    classes: int | None = Field(None, description="Number of classes; null for an unlabelled set.")


class ShiftPoint(Options):
    """One model on the test set with one corruption at one severity; severity 0, the clean set, is in the metrics."""

    model: str = Field(description="Its name in this result.")
    corruption: str = Field(description="Name of the corruption: noise, blur, ...")
    severity: int = Field(ge=1, le=5, description="1 (mild) to 5.")
    accuracy: FiniteFloat | None = Field(description="As cls/accuracy.")
    nll: FiniteFloat | None = Field(description="As cls/nll.")
    ece: FiniteFloat | None = Field(description="As cal/ece.")
    reasons: dict[str, str] = Field(default_factory=dict, description="Why a figure is null.")


class Resampling(Options):
    """How the intervals were made."""

    resamples: int = Field(ge=1, description="Draws of the test set with replacement.")
    level: float = Field(0.95, gt=0, lt=1, description="Probability that an interval is to cover.")
    seed: int = Field(0, description="Seed of the draws.")


class Cost(Options):
    """What a model costs; null where it was not measured."""

    params: int | None = Field(None, ge=0, description="Distinct parameters.")
    bytes: int | None = Field(None, ge=0, description="Size on disk.")
    flops: FiniteFloat | None = Field(None, ge=0, description="FLOPs that ran per input, mean over the inputs.")
    flops_p05: FiniteFloat | None = Field(None, ge=0, description="5th percentile over the inputs.")
    flops_p95: FiniteFloat | None = Field(None, ge=0, description="95th percentile over the inputs.")
    attention_flops: FiniteFloat | None = Field(None, ge=0, description="Those of the attention sub-layers, mean.")
    attention_flops_p05: FiniteFloat | None = Field(None, ge=0, description="5th percentile over the inputs.")
    attention_flops_p95: FiniteFloat | None = Field(None, ge=0, description="95th percentile over the inputs.")
    throughput: FiniteFloat | None = Field(None, ge=0, description="Inputs per second.")
    peak_mb: FiniteFloat | None = Field(
        None, ge=0, description="Weights and what a forward pass of one batch adds at its peak, MB (10^6 bytes)."
    )
    energy_j: FiniteFloat | None = Field(None, ge=0, description="Energy per input, J, as codecarbon estimates it.")
    co2_g: FiniteFloat | None = Field(None, ge=0, description="CO2 per input, grams, from the same estimate.")
    latency: Latency | None = Field(None, description="Time of one batch.")
    reasons: dict[str, str] = Field(default_factory=dict, description="Why a cost that was asked for is null.")

    def value(self, name: str) -> float | None:
        """The cost behind a metric name without ``cost/``; ``latency_ms`` is the median."""
        if name == "latency_ms":
            return None if self.latency is None else self.latency.median_ms
        value = getattr(self, name)
        return None if value is None else float(value)


class ModelResult(Options):
    """Everything about one model of the call."""

    name: str = Field(description="Its name in the call, unique.")
    kind: str = Field(description="single, pruned, members, fused, or a baseline's word.")
    reference: str = Field("", description="What was opened, as the user wrote it.")
    digest: str | None = Field(None, description="Hash of the artifact; null for a model that is none.")
    members: int = Field(1, ge=1, description="Predictions that are averaged.")
    settings: dict[str, FiniteFloat] = Field(
        default_factory=dict, description="What a baseline chose: temperature; passes and dropout_rate."
    )
    baseline: bool = Field(False, description="Evaluated for comparison only; gates pass it over.")
    metrics: dict[str, FiniteFloat | None] = Field(
        default_factory=dict, description="Every metric but costs, by name; null where it has no value."
    )
    reasons: dict[str, str] = Field(default_factory=dict, description="Why a metric is null.")
    intervals: dict[str, Interval] = Field(default_factory=dict, description="Of the headline metrics, by name.")
    differences: dict[str, Interval] = Field(
        default_factory=dict, description="Intervals of model - first model, paired."
    )
    cost: Cost = Field(default_factory=Cost, description="What it costs; in gates ``cost/NAME``.")
    budget: ShareSummary | None = Field(
        None, description="Executed share k/H of the heads, ``budget/mean p05 p95`` in gates; null without budgets."
    )
    kept_tokens: ShareSummary | None = Field(
        None, description="Share of the tokens that pass a routed layer, ``route/kept`` in gates; null without routers."
    )

    @model_validator(mode="after")
    def _reasons_for_nulls(self) -> ModelResult:
        unexplained = [name for name, value in self.metrics.items() if value is None and name not in self.reasons]
        if unexplained:
            raise ValueError(f"metrics {', '.join(unexplained)} of {self.name} are null without a reason")
        return self

    def value(self, name: str) -> tuple[float | None, str | None]:
        """A metric's or cost's value, or ``None`` and the reason."""
        if name.startswith("cost/"):
            cost = name.removeprefix("cost/")
            value = self.cost.value(cost)
            return value, None if value is not None else self.cost.reasons.get(cost, "not measured")
        if name.startswith("budget/"):
            return _figure(self.budget, name.removeprefix("budget/")), "the model has no budgets"
        if name == "route/kept":
            return _figure(self.kept_tokens, "mean"), "the model has no routers"
        return self.metrics.get(name), self.reasons.get(name, "not computed")

    def within_noise(self) -> tuple[str, ...]:
        """Metrics whose paired interval against the first model contains 0."""
        return tuple(name for name, interval in self.differences.items() if interval.contains(0.0))


def _figure(summary: ShareSummary | None, name: str) -> float | None:
    return None if summary is None else float(getattr(summary, name))


class EvaluationResult(Options):
    """One evaluation: one set, any number of out-of-distribution sets, and the models side by side."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/eval"] = Field("compress/eval", alias="schema", description="Tells what the file is.")
    schema_version: Literal[1] = Field(1, description="Grows when a field changes its meaning or goes.")
    data: DataSummary = Field(description="The test set.")
    ood: dict[str, DataSummary] = Field(default_factory=dict, description="Out-of-distribution sets, by name.")
    conventions: str = Field(CONVENTIONS, description="How the figures are defined, in words.")
    environment: Environment = Field(description="Where it ran.")
    latency_batch: int | None = Field(None, ge=1, description="Inputs per timed call.")
    resampling: Resampling | None = Field(None, description="Null when there are no intervals.")
    models: tuple[ModelResult, ...] = Field(
        min_length=1, description="In the order of the call; the first is the reference."
    )
    shift: tuple[ShiftPoint, ...] = Field(
        (), description="By corruption, then severity, then model; empty when no shift was asked for."
    )
    failed_gates: tuple[FailedGate, ...] = Field((), description="Gates that hold, each per model; the exit code is 3.")
    passed_gates: tuple[PassedGate, ...] = Field((), description="The other gates, each per model.")

    @model_validator(mode="after")
    def _unique_names(self) -> EvaluationResult:
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError(f"model names {names} are not unique")
        return self

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions of the shift, in order."""
        return tuple(dict.fromkeys(point.corruption for point in self.shift))

    def value(self, model: str, metric: str) -> float | None:
        """The value of a metric or cost, ``None`` when it has none; raises ``UsageError`` for unknown names."""
        by_name = {entry.name: entry for entry in self.models}
        if model not in by_name:
            raise UsageError(f"no model {model!r} in this result", fix=nearest(model, by_name))
        known = catalogue(self.ood, self.corruptions)
        if metric not in known:
            raise UsageError(f"unknown metric {metric!r}", fix=nearest(metric, known))
        return by_name[model].value(metric)[0]

    def to_json(self) -> str:
        """The result as JSON, with a final newline; the same result gives the same bytes."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> EvaluationResult:
        """Read what ``to_json`` wrote; raises pydantic's ``ValidationError`` when it is something else."""
        return cls.model_validate_json(text)

    def table(self, width: int = 100) -> str:
        """The result as aligned text of at most ``width`` columns, with its notes."""
        from compress.evaluation.table import render_table

        return render_table(self, width)
