"""Models that were trained apart, their probabilities averaged: what uncertainty costs without fusing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from compress.errors import ModelError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.subject import Subject
from compress.transformer.ensemble import Ensemble


def build(name: str, models: Sequence[str | Path | nn.Module], opening: Opening) -> Subject:
    """The models run one after the other. Lakshminarayanan et al., NeurIPS 2017 (arXiv 1612.01474).

    Raises:
        ModelError: their labels or preprocessing differ.
    """
    parts = tuple(opening.subject(name, given) for given in models)
    members = [model for part in parts for model in part.models]
    for model in members[1:]:
        for aspect in ("labels", "preprocessing"):
            if getattr(model.config, aspect) != getattr(members[0].config, aspect):
                raise ModelError(
                    f"its models differ in their {aspect}", where=name, fix="average models of one task and one input"
                )
    return Subject(name, Ensemble(members), parts=parts)
