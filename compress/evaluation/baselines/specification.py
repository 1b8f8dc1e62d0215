"""How a user names a baseline: ``deep_ensemble:a,b,c``, ``mc_dropout:model``. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.errors import UsageError
from compress.registry import Registry

if TYPE_CHECKING:
    from torch import nn

    from compress.evaluation.subject import Subject

_PACKAGE = "compress.evaluation.baselines"
BASELINES: Registry[Callable[[str, Sequence[Any], Any], Subject]] = Registry(
    "baseline",
    {
        "single": f"{_PACKAGE}.single:build",
        "pruned": f"{_PACKAGE}.pruned:build",
        "deep_ensemble": f"{_PACKAGE}.deep_ensemble:build",
        "mc_dropout": f"{_PACKAGE}.mc_dropout:build",
        "temperature": f"{_PACKAGE}.temperature:build",
    },
)
SEVERAL = ("deep_ensemble",)
"""The baselines that are made of several models."""


@dataclass(frozen=True)
class Baseline:
    """A baseline and the models it is made of.

    Attributes:
        kind: its word.
        models: artifact folders, references of ``open_model``, or loaded models; one for most baselines.
    """

    kind: str
    models: tuple[str | Path | nn.Module, ...]

    def __post_init__(self) -> None:
        if self.kind not in BASELINES:
            BASELINES[self.kind]  # raises, with the nearest word
        if self.kind in SEVERAL and len(self.models) < 2:
            raise UsageError(
                f"an ensemble of {len(self.models)} is none", where=self.kind, fix="name two models or more: a,b,c"
            )
        if self.kind not in SEVERAL and len(self.models) != 1:
            raise UsageError(f"takes one model, not {len(self.models)}", where=self.kind, fix="name one model")

    @property
    def reference(self) -> str:
        """As a user writes it."""
        named = [str(model) if isinstance(model, str | Path) else type(model).__name__ for model in self.models]
        return f"{self.kind}:{','.join(named)}"


def parse_baseline(text: str) -> Baseline | None:
    """The baseline that ``text`` names, or None when it names a model.

    ``WORD:MODEL``, or for a Deep Ensemble ``deep_ensemble:MODEL,MODEL,...``; a path that exists as it is written is a
    model.

    Raises:
        UsageError: a baseline without models, or with too many or too few.
    """
    kind, colon, rest = text.partition(":")
    if not colon or kind not in BASELINES or Path(text).exists():
        return None
    named = [part.strip() for part in rest.split(",")] if kind in SEVERAL else [rest]
    if not all(named):
        raise UsageError("a model is missing", where=text, fix=f"write {kind}:MODEL{',MODEL' * (kind in SEVERAL)}")
    return Baseline(kind, tuple(named))
