"""``predictions.json``: what the tensors of a predictions folder are.

The tensors of a set, in ``predictions.safetensors``, N samples, M members, K classes:

==========================  ============================================================================
``SET/logits/MODEL``        ``(M, N, K)`` float32, the logits of every member
``SET/labels``              ``(N,)`` int64, class numbers; absent for an unlabelled set
``SET/ids``                 ``(bytes,)`` uint8, the samples' names in UTF-8, one after the other
``SET/id_ends``             ``(N,)`` int64, where each name ends
==========================  ============================================================================

SET is ``test``, ``ood/NAME`` or ``shift/CORRUPTION/SEVERITY``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field, FiniteFloat, field_validator

from compress.evaluation.result import Cost, DataSummary
from compress.evaluation.use_summary import ShareSummary
from compress.options import Options
from compress.runtime import DType

DESCRIPTION = "predictions.json"
TENSORS = "predictions.safetensors"
TEST = "test"
_SET_NAME = re.compile(r"test|ood/[^/]+|shift/[^/]+/[1-5]")

FOLDER = "predictions"
"""Where a recipe's eval stage keeps them, within its own folder."""


class StoredModel(Options):
    """One model whose predictions are stored; see ``ModelResult``."""

    name: str = Field(description="Its name in the call.")
    kind: str = Field(description="single, pruned, members, fused, or a baseline's word.")
    digest: str | None = Field(None, description="Hash of the artifact; null for a model that is none.")
    members: int = Field(ge=1, description="M, the predictions that are averaged.")
    baseline: bool = Field(False, description="There for comparison only; gates pass it over.")
    settings: dict[str, FiniteFloat] = Field(default_factory=dict, description="What a baseline chose.")
    kept_heads: tuple[tuple[tuple[int, ...], ...], ...] = Field(
        description="[layer][member], by their number in the original model; empty when unknown."
    )
    original_heads: tuple[int, ...] = Field(description="Heads per layer before any was pruned.")
    branch_layer: int = Field(0, ge=0, description="The first layer in which members differ.")
    cost: Cost = Field(description="What was counted; what was measured differs from run to run and is not stored.")
    budget: ShareSummary | None = Field(None, description="Executed share of the heads.")
    kept_tokens: ShareSummary | None = Field(None, description="Share of the tokens that pass a routed layer.")


class StoredPredictions(Options):
    """The content of ``predictions.json``; the same in every run, so no times and no absolute paths."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/predictions"] = Field(
        "compress/predictions", alias="schema", description="Tells what the file is."
    )
    schema_version: Literal[1] = Field(1, description="Grows when a field changes its meaning or goes.")
    labels: tuple[str, ...] = Field(description="Class names, in the order of the logits.")
    dtype: DType = Field(description="Number format of the forward passes.")
    sets: dict[str, DataSummary] = Field(description="The sets: test, ood/NAME, shift/CORRUPTION/SEVERITY.")
    models: tuple[StoredModel, ...] = Field(min_length=1, description="In the order of the call.")

    @field_validator("sets")
    @classmethod
    def _known_sets(cls, sets: dict[str, DataSummary]) -> dict[str, DataSummary]:
        if TEST not in sets:
            raise ValueError(f"the set {TEST!r} is missing")
        for name in sets:
            if not _SET_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a set")
        return sets

    @property
    def ood(self) -> dict[str, DataSummary]:
        """The out-of-distribution sets by their name."""
        return {name.removeprefix("ood/"): data for name, data in self.sets.items() if name.startswith("ood/")}

    @property
    def shifts(self) -> tuple[tuple[str, int], ...]:
        """The corruptions and severities, in order."""
        parts = (name.split("/") for name in self.sets if name.startswith("shift/"))
        return tuple((corruption, int(severity)) for _, corruption, severity in parts)


def portable(summary: DataSummary) -> DataSummary:
    """The same without an absolute path."""
    path = Path(summary.reference)
    return summary.model_copy(update={"reference": path.name}) if path.is_absolute() else summary
