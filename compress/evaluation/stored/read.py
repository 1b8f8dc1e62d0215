"""Opening a predictions folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from compress.artifact.durable import read_failure
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.artifact.tensors import TensorFile, read_tensors
from compress.errors import ArtifactError
from compress.evaluation.predictions import LOGITS_PER_REDUCTION, ColumnCollector, Columns
from compress.evaluation.stored.schema import DESCRIPTION, FOLDER, TENSORS, StoredPredictions

Part = tuple[str, slice]
"""Some members of a stored model: its name, and which."""


class PredictionReader:
    """Stored predictions; logits are read from the mapped file, a stretch of samples at a time.

    Attributes:
        description: the models and sets.
    """

    def __init__(self, description: StoredPredictions, tensors: TensorFile, where: Path) -> None:
        self.description = description
        self._tensors, self._where = tensors, where

    def columns(self, name: str, parts: Sequence[Part]) -> Columns:
        """The columns of the set ``name`` for models that answer together: all members of all parts are averaged."""
        collector = ColumnCollector()
        for logits, labels, ids in self._batches(name, parts):
            collector.add(logits, labels, ids)
        return collector.finish()

    def _batches(self, name: str, parts: Sequence[Part]) -> Iterator[tuple[Tensor, Tensor | None, list[str]]]:
        whole = [self._tensor(f"{name}/logits/{model}")[members] for model, members in parts]
        labels = self._tensors.get(f"{name}/labels")
        ids = self._ids(name)
        rows = max(1, LOGITS_PER_REDUCTION // max(1, sum(len(logits) * logits.shape[2] for logits in whole)))
        for start in range(0, len(ids), rows):
            part = slice(start, start + rows)
            logits = torch.cat([stretch[:, part] for stretch in whole])
            yield logits, None if labels is None else labels[part], ids[part]

    def _ids(self, name: str) -> list[str]:
        text, ends = self._tensor(f"{name}/ids").numpy().tobytes(), self._tensor(f"{name}/id_ends").tolist()
        return [text[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]

    def _tensor(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise ArtifactError(
                f"the tensor {name!r} is missing", where=str(self._where), fix="run `compress eval` again"
            )
        return self._tensors[name]


def read_predictions(folder: Path) -> PredictionReader:
    """Open what ``evaluate(..., predictions=folder)`` wrote; a recipe's eval folder holds such a folder.

    Raises:
        ArtifactError: it is incomplete, damaged, or holds no predictions.
    """
    inner = folder / FOLDER
    place = inner if (inner / MANIFEST_NAME).is_file() else folder
    manifest = verify_folder(place, expect_kind="predictions")
    if DESCRIPTION not in manifest.files:
        raise ArtifactError(
            "holds the figures of an evaluation, but no predictions",
            where=str(place),
            fix="run `compress eval` with --predictions",
        )
    path = place / DESCRIPTION
    try:
        description = StoredPredictions.model_validate_json(path.read_bytes())
    except OSError as error:
        raise read_failure(error, path) from error
    except ValidationError as error:
        raise ArtifactError(
            f"is no description of predictions ({error.errors()[0]['msg']})",
            where=str(path),
            fix="run `compress eval` again",
        ) from None
    return PredictionReader(description, read_tensors(place / TENSORS), place / TENSORS)
