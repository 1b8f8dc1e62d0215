"""Keeping the predictions of an evaluation."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from compress.artifact.durable import write_bytes, write_failure
from compress.artifact.folder import new_folder
from compress.artifact.tensors import TensorEntry, write_tensors
from compress.data.base import Dataset
from compress.evaluation.costs import counted
from compress.evaluation.predictions import Columns
from compress.evaluation.stored.rows import LogitRows
from compress.evaluation.stored.schema import DESCRIPTION, TENSORS, StoredModel, StoredPredictions, portable
from compress.evaluation.summary import Evaluated, summary_of
from compress.runtime import DType

_WAITING = "rows"


class PredictionStore:
    """Takes in predictions while they are made; see ``stored_predictions``.

    Args:
        folder: an empty folder on the disk that the predictions will lie on; logits wait in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sets: dict[str, Dataset] = {}
        self._names: dict[str, Columns] = {}
        self._logits: dict[tuple[str, str], LogitRows] = {}
        self._description: StoredPredictions | None = None

    def rows(self, model: str, name: str, dataset: Dataset) -> LogitRows:
        """Where the logits of ``model`` on the set called ``name`` go."""
        self._sets[name] = dataset
        path = self._folder / f"{len(self._logits)}"
        self._logits[name, model] = LogitRows(path, len(dataset))
        return self._logits[name, model]

    def identify(self, name: str, columns: Columns) -> None:
        """Take the identities and labels of a set from the columns of any model."""
        self._names[name] = columns

    def finish(self, models: Sequence[Evaluated], labels: Sequence[str], dtype: DType) -> None:
        """Say what was stored: the models, the class names, and the number format of the forward passes."""
        self._description = StoredPredictions(
            labels=tuple(labels),
            dtype=dtype,
            sets={name: portable(summary_of(dataset)) for name, dataset in self._sets.items()},
            models=tuple(_stored(model) for model in models),
        )

    @property
    def description(self) -> StoredPredictions:
        """What goes beside the tensors; raises ``ValueError`` before ``finish``."""
        if self._description is None:
            raise ValueError("the predictions were not finished")
        return self._description

    def entries(self) -> Iterator[TensorEntry]:
        """The tensors to write; logits stay in their files until each is due."""
        for (name, model), rows in self._logits.items():
            yield TensorEntry(f"{name}/logits/{model}", torch.float32, rows.shape, rows.load)
        for name, columns in self._names.items():
            encoded = [identity.encode() for identity in columns.ids]
            ends = torch.tensor([len(identity) for identity in encoded], dtype=torch.int64).cumsum(0)
            text = torch.frombuffer(bytearray(b"".join(encoded)), dtype=torch.uint8) if any(encoded) else _NO_BYTES
            yield _entry(f"{name}/ids", text)
            yield _entry(f"{name}/id_ends", ends)
            if columns.labels is not None:
                yield _entry(f"{name}/labels", columns.labels)


@contextlib.contextmanager
def stored_predictions(target: Path, *, overwrite: bool = False) -> Iterator[PredictionStore]:
    """Within the block predictions are taken in; when it ends well they appear under ``target``, as one artifact.

    Disk space for the logits is needed twice, memory for one set of identities and for nothing that grows with
    samples x classes.

    Raises:
        ArtifactError: the place cannot be written.
    """
    with new_folder(target, kind="predictions", stage="eval", overwrite=overwrite) as partial:
        waiting = partial / _WAITING
        waiting.mkdir()
        store = PredictionStore(waiting)
        yield store
        write_tensors(partial / TENSORS, store.entries())
        write_bytes(partial / DESCRIPTION, (store.description.model_dump_json(by_alias=True, indent=2) + "\n").encode())
        try:
            shutil.rmtree(waiting)
        except OSError as error:
            raise write_failure(error, waiting) from error


_NO_BYTES = torch.empty(0, dtype=torch.uint8)


def _entry(name: str, tensor: torch.Tensor) -> TensorEntry:
    return TensorEntry(name, tensor.dtype, tuple(tensor.shape), lambda: tensor)


def _stored(model: Evaluated) -> StoredModel:
    predictions = model.predictions
    return StoredModel(
        name=model.name,
        kind=model.kind,
        digest=model.digest,
        members=model.members,
        baseline=model.baseline,
        settings=dict(model.settings),
        kept_heads=tuple(tuple(tuple(heads) for heads in layer) for layer in predictions.kept_heads or ()),
        original_heads=model.original_heads,
        branch_layer=predictions.branch_layer,
        cost=counted(model.cost),
        budget=model.budget,
        kept_tokens=model.kept_tokens,
    )
