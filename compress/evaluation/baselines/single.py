"""One model as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from compress.errors import ModelError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.subject import Subject


def build(name: str, models: Sequence[str | Path | nn.Module], opening: Opening) -> Subject:
    """The model itself, which must answer with one prediction.

    Raises:
        ModelError: it has several members.
    """
    subject = opening.subject(name, models[0])
    if subject.members > 1:
        raise ModelError(
            f"has {subject.members} members", where=subject.reference or name, fix="name the model it was made from"
        )
    return subject
