"""The result of a sweep: the schema of its JSON, version 1, and its table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict, Field, FiniteFloat

from compress.columns import columns
from compress.evaluation.result import DataSummary, Interval, ModelResult
from compress.options import Options

SINGLE = "single"
ACCURACY, ECE, DISAGREEMENT = "cls/accuracy", "cal/ece", "div/disagreement"
HIGHER, LOWER = 1, -1


class SweepPoint(Options):
    """One combination, fused; or the single model, which keeps all heads."""

    name: str
    keep: int | float | None = Field(None, description="Heads kept per layer from the branch layer on.")
    members: int = Field(1, ge=1)
    branch_layer: int | None = None
    flops: FiniteFloat | None = Field(None, description="Analytic FLOPs per input.")
    parameters: int | None = None
    metrics: dict[str, FiniteFloat | None] = Field(default_factory=dict)
    intervals: dict[str, Interval] = Field(default_factory=dict, description="Bootstrap 95 % intervals.")
    reason: str | None = Field(None, description="Why there is no such model.")

    def measured(self, model: ModelResult, names: Sequence[str]) -> SweepPoint:
        """This point with what an evaluation found."""
        return self.model_copy(
            update={
                "flops": model.cost.flops,
                "parameters": model.cost.params,
                "metrics": {name: model.metrics.get(name) for name in names},
                "intervals": {name: model.intervals[name] for name in names if name in model.intervals},
            }
        )


class SweepResult(Options):
    """All points of a sweep, the single model first."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/sweep"] = Field("compress/sweep", alias="schema")
    schema_version: Literal[1] = 1
    method: str = Field(description="How the heads were found.")
    data: DataSummary = Field(description="The set on which the points were measured.")
    ood: dict[str, DataSummary] = Field(default_factory=dict)
    points: tuple[SweepPoint, ...] = Field(min_length=1)

    @property
    def qualities(self) -> dict[str, int]:
        """The figures that points are compared by beside FLOPs, and whether higher is better."""
        return {ACCURACY: HIGHER, ECE: LOWER, **{f"ood/{name}/auroc": HIGHER for name in self.ood}}

    def frontier(self, qualities: Sequence[str] | None = None) -> tuple[str, ...]:
        """Points that no other beats: at most as many FLOPs, at least as good in every figure, better in one of them.

        Args:
            qualities: the figures; None for all.
        """
        signs = {name: sign for name, sign in self.qualities.items() if qualities is None or name in qualities}
        places: dict[str, list[float]] = {}
        for point in self.points:
            values = [point.metrics.get(name) for name in signs]
            if point.flops is not None and all(value is not None for value in values):
                gains = [sign * value for sign, value in zip(signs.values(), values, strict=True) if value is not None]
                places[point.name] = [-point.flops, *gains]
        return tuple(
            name
            for name, own in places.items()
            if not any(
                other != own and all(b >= a for a, b in zip(own, other, strict=True)) for other in places.values()
            )
        )

    def table(self) -> str:
        """A row per point; points that no other beats in every figure are marked."""
        best, single = self.frontier(), self.points[0].flops
        shown = [*self.qualities, DISAGREEMENT]
        header = ["", "point", "heads", "members", "branch", "FLOPs", "x single"]
        rows = [[*header, "accuracy %", "ECE %", *(f"AUROC % {name}" for name in self.ood), "disagree %"]]
        notes = []
        for point in self.points:
            heads = "all" if point.keep is None else str(point.keep)
            branch = "-" if point.branch_layer is None else str(point.branch_layer)
            cells = ["*" if point.name in best else "", point.name, heads, str(point.members), branch]
            if point.flops is None:
                notes.append(f"{point.name}: {point.reason}")
                rows.append([*cells, *["-"] * (len(rows[0]) - len(cells))])
                continue
            cells += [f"{point.flops / 1e6:,.1f} M", f"{point.flops / single:.2f}" if single else "-"]
            values = [point.metrics.get(name) for name in shown]
            rows.append([*cells, *("-" if value is None else f"{100 * value:.1f}" for value in values)])
        notes.append("* no other point is as cheap and as good in every figure; FLOPs per input, 1 MAC = 2 FLOPs")
        return "\n".join([*columns(rows, right=range(2, len(rows[0]))), *notes])

    def to_json(self) -> str:
        """The result as JSON, with a final newline; the same result gives the same bytes."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
