"""The result of a benchmark: the schema of its JSON, version 1."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import ConfigDict, Field, FiniteFloat

from compress.evaluation.environment import Environment
from compress.evaluation.latency import Latency
from compress.options import Options

CONVENTIONS = (
    "Ratios are to the library's own, unmodified model of the same run (library) and to this project's single model, "
    "whose last layer computes the pooled tokens only (single). Time: medians of interleaved calls on noise, or on "
    "texts of full length. FLOPs per input, 1 MAC = 2 FLOPs, without normalisations and activations. Peak memory: "
    "weights and what a forward pass adds, MB = 10^6 bytes. Weights are random where they were not given: they change "
    "no time."
)
Kind = Literal["library", "single", "pruned", "members", "deep_ensemble", "fused", "budgeted", "routed", "bare"]


class BenchRow(Options):
    """One variant in one run."""

    name: str = Field(description="Its name, unique in the run.")
    kind: Kind = Field(description="What it is.")
    members: int = Field(ge=1, description="M, the predictions that are averaged.")
    branch_layer: int | None = Field(None, description="First layer with M streams, of a fused model.")
    compiled: bool = Field(False, description="Whether it ran through torch.compile.")
    latency: Latency = Field(description="Time of one forward pass of the batch.")
    throughput: FiniteFloat = Field(ge=0, description="Inputs per second.")
    time_ratio: FiniteFloat = Field(ge=0, description="Median time over that of library.")
    time_ratio_single: FiniteFloat = Field(ge=0, description="Median time over that of single.")
    flops: FiniteFloat = Field(ge=0, description="FLOPs per input that ran: budgets and routers leave some out.")
    flops_ratio: FiniteFloat = Field(ge=0, description="FLOPs over those of library.")
    flops_ratio_single: FiniteFloat = Field(ge=0, description="FLOPs over those of single.")
    params: int = Field(ge=0, description="Distinct parameters.")
    peak_mb: FiniteFloat | None = Field(None, ge=0, description="Weights and what the pass adds at its peak, MB.")
    reason: str | None = Field(None, description="Why peak_mb is null.")


class BenchRun(Options):
    """The variants that were measured in turns: one batch size in one number format."""

    batch: int = Field(ge=1, description="Inputs per forward pass.")
    tokens: int = Field(ge=1, description="Tokens per input, prefix tokens included.")
    environment: Environment = Field(description="Where it ran, and in which number format.")
    load: FiniteFloat | None = Field(
        None, ge=0, description="Processes that wanted a CPU when the run began, mean of a minute; null if unknown."
    )
    rows: tuple[BenchRow, ...] = Field(min_length=1, description="The variants.")

    def row(self, name: str) -> BenchRow | None:
        """The variant of this name, not compiled."""
        return next((row for row in self.rows if row.name == name and not row.compiled), None)


class BenchResult(Options):
    """One call of ``bench``."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/bench"] = Field("compress/bench", alias="schema", description="Tells what this is.")
    schema_version: Literal[1] = Field(1, description="Grows when a field changes its meaning or goes.")
    model: str = Field(description="The model, as the user wrote it.")
    torch: str = Field(description="Version of torch.")
    conventions: str = Field(CONVENTIONS, description="How the figures are defined, in words.")
    runs: tuple[BenchRun, ...] = Field(min_length=1, description="By number format, then batch size.")

    def to_json(self) -> str:
        """The result as JSON, with a final newline."""
        content = self.model_dump(mode="json", by_alias=True)
        return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def table(self) -> str:
        """Aligned text, a block per run."""
        from compress.benching.table import render_table

        return render_table(self)
