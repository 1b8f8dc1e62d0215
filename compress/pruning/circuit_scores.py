"""The losses that circuit searches found, layer by layer: what a search is resumed from, and selected from again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from torch import Tensor

from compress.artifact.header import damaged
from compress.artifact.tensors import TensorFile, tensor_entries, write_tensors
from compress.options import Options
from compress.pruning.objectives import Losses
from compress.pruning.options import Objective
from compress.pruning.scores import Importance, open_scores
from compress.pruning.selection import strongest

METHOD = "circuit"


class Search(Options):
    """One layer-conditioned search on one model and its data. Heads are slots: positions among the present heads."""

    objective: Objective = Field(description="What is searched by.")
    start: int = Field(ge=0, description="First layer that is searched.")
    keep: tuple[int, ...] = Field(description="How many heads of each searched layer join the circuit.")
    masked: tuple[tuple[int, ...], ...] = Field(description="Heads that are masked in each layer below the start.")
    bootstrap: tuple[int, int] | None = Field(
        None, description="Seed and member of the bootstrap of the data; none for the data themselves."
    )


@dataclass(frozen=True, eq=False)
class SearchScores:
    """What a search has found so far.

    Attributes:
        search: what is searched.
        losses: of each layer done, without one head at a time, ``(n_l,)``; ``len(search.keep)`` layers when complete.
    """

    search: Search
    losses: tuple[Losses, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every layer is done."""
        return len(self.losses) == len(self.search.keep)

    @property
    def circuit(self) -> tuple[tuple[int, ...], ...]:
        """The heads with the highest losses, per layer done; ties go to the lowest slot."""
        rankings = [losses.ranking(self.search.objective) for losses in self.losses]
        return tuple(tuple(strongest(own, keep)) for own, keep in zip(rankings, self.search.keep, strict=False))

    @property
    def importance(self) -> Importance:
        """Per layer done; higher means keep."""
        return [losses.importance(self.search.objective) for losses in self.losses]


@dataclass(frozen=True, eq=False)
class CircuitScores:
    """Searches on one model and its data.

    Attributes:
        model: fingerprint of the model.
        data: fingerprint of the calibration set.
        ood: fingerprint of the foreign validation set, or None without one.
        dtype: number format of the forward passes.
        searches: by what was searched.
    """

    model: str
    data: str | None
    ood: str | None
    dtype: str
    searches: dict[Search, SearchScores] = field(default_factory=dict)

    def same_data(self, other: CircuitScores) -> bool:
        """Whether the searches of both were made on the same model and data, and in the same number format."""
        names = ("model", "data", "ood", "dtype")
        return all(getattr(self, name) == getattr(other, name) for name in names)


def save_circuit_scores(scores: CircuitScores, path: Path) -> None:
    """Write searches, complete or not; the file appears whole or not at all."""
    tensors: dict[str, Tensor] = {}
    for number, found in enumerate(scores.searches.values()):
        for layer, losses in enumerate(found.losses, start=found.search.start):
            for name in ("task", "ood"):
                loss = getattr(losses, name)
                if loss is not None:
                    tensors[_name(number, layer, name)] = loss
    entries, ties = tensor_entries(tensors)
    about = {
        "method": METHOD,
        "model": scores.model,
        "data": scores.data,
        "ood": scores.ood,
        "dtype": scores.dtype,
        "searches": [
            {**found.search.model_dump(mode="json"), "layers_done": len(found.losses)}
            for found in scores.searches.values()
        ],
    }
    write_tensors(path, entries, about, ties=ties)


def load_circuit_scores(path: Path, *, model: str, heads: Sequence[int]) -> CircuitScores:
    """Read what ``save_circuit_scores`` wrote, from a file or from the folder of a ``prune``.

    Args:
        path: the file or folder.
        model: fingerprint that the scores must have.
        heads: number of heads of every layer of the model.

    Raises:
        ArtifactError: no such file, a damaged one, or scores of another model or method.
    """
    path, tensors = open_scores(path, model=model, method=METHOD)
    about = tensors.metadata
    try:
        found = [_read_search(tensors, number, dict(item)) for number, item in enumerate(about["searches"])]
        scores = CircuitScores(model, about["data"], about["ood"], about["dtype"], {own.search: own for own in found})
    except (KeyError, TypeError, ValueError, ValidationError):
        raise damaged(path, "has damaged metadata") from None
    if any(not _fits(own, heads) for own in found):
        raise damaged(path, "does not fit the model's number of heads")
    return scores


def _read_search(tensors: TensorFile, number: int, item: dict[str, Any]) -> SearchScores:
    done = item.pop("layers_done")
    search = Search.model_validate(item)
    losses = []
    for layer in range(search.start, search.start + done):
        names = {name: _name(number, layer, name) for name in ("task", "ood")}
        losses.append(Losses(**{name: tensors[key].clone() if key in tensors else None for name, key in names.items()}))
    return SearchScores(search, tuple(losses))


def _fits(found: SearchScores, heads: Sequence[int]) -> bool:
    """Whether every tensor is there and has one value per head."""
    search = found.search
    searched = heads[search.start : search.start + len(search.keep)]
    needed = {"task": ("task",), "ood": ("ood",), "avg": ("task", "ood")}[search.objective]
    return (
        len(search.masked) == search.start
        and len(searched) == len(search.keep) >= len(found.losses)
        and all(getattr(losses, name) is not None for losses in found.losses for name in needed)
        and all(
            tuple(loss.shape) == (count,)
            for losses, count in zip(found.losses, searched, strict=False)
            for loss in (losses.task, losses.ood)
            if loss is not None
        )
    )


def _name(number: int, layer: int, loss: str) -> str:
    return f"search.{number:03d}.layer.{layer:03d}.{loss}"
