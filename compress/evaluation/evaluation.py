"""A finished evaluation with the evidence behind its figures: what a report is made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compress.data.base import Dataset
from compress.evaluation.predictions import Predictions
from compress.evaluation.result import EvaluationResult
from compress.inference.routes import InputRoutes


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result, and the per-sample columns and inputs it was computed from.

    Attributes:
        result: the figures.
        predictions: by the model's name, in the order of the result.
        test: the evaluated set, its classes in the order of the models' logits; None when only predictions are at hand.
        original_heads: by the model's name, heads per layer before any was pruned.
        folders: by the model's name, the artifact's folder; models that are none are left out.
        routes: by the name of a model with routers, which tokens of the first inputs of the set pass its blocks.
    """

    result: EvaluationResult
    predictions: Mapping[str, Predictions]
    test: Dataset | None = None
    original_heads: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    routes: Mapping[str, Sequence[InputRoutes]] = field(default_factory=dict)
