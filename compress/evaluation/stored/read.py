"""Opening a predictions folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from compress.artifact.durable import read_bytes
from compress.artifact.folder import verify_folder
from compress.artifact.json_values import check_values
from compress.artifact.manifest import MANIFEST_NAME
from compress.artifact.tensors import TensorFile, read_tensors
from compress.errors import ArtifactError, first_line
from compress.evaluation.predictions import LOGITS_PER_REDUCTION, ColumnCollector, Columns
from compress.evaluation.stored.schema import DESCRIPTION, FOLDER, TENSORS, StoredPredictions

MAX_DESCRIPTION_BYTES = 16 * 2**20
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
        return [text[start:end].decode(errors="replace") for start, end in zip([0, *ends], ends, strict=False)]

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
        content = read_bytes(path, MAX_DESCRIPTION_BYTES)
        check_values(content)
        description = StoredPredictions.model_validate_json(content)
    except ValueError as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else first_line(error)
        raise ArtifactError(
            f"is no description of predictions ({reason})",
            where=str(path),
            fix="run `compress eval` again",
        ) from None
    tensors = read_tensors(place / TENSORS)
    for name in description.sets:
        _check_set(name, description, tensors, place / TENSORS)
    return PredictionReader(description, tensors, place / TENSORS)


def _check_set(name: str, description: StoredPredictions, tensors: TensorFile, where: Path) -> None:
    """The tensors of a set have the shapes and the contents that ``schema`` says; raises ``ArtifactError``."""
    samples, classes = description.sets[name].samples, len(description.labels)
    expected: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {f"{name}/id_ends": (torch.int64, (samples,))}
    for model in description.models:
        whole = (model.members, samples, classes) if samples else (0, 0, 0)
        expected[f"{name}/logits/{model.name}"] = (torch.float32, whole)
    if f"{name}/labels" in tensors:
        expected[f"{name}/labels"] = (torch.int64, (samples,))
    for key, (dtype, shape) in expected.items():
        if key not in tensors or tensors.dtype(key) != dtype or tensors.shape(key) != shape:
            raise _unfit(key, where)
    if f"{name}/labels" in tensors and samples:
        labels = tensors[f"{name}/labels"]
        if int(labels.min()) < 0 or int(labels.max()) >= classes:
            raise _unfit(f"{name}/labels", where)
    text = tensors.get(f"{name}/ids")
    if text is None or text.dtype != torch.uint8 or text.dim() != 1:
        raise _unfit(f"{name}/ids", where)
    ends = tensors[f"{name}/id_ends"]
    if bool((ends.diff(prepend=ends.new_zeros(1)) < 0).any()) or (samples and int(ends[-1]) != len(text)):
        raise _unfit(f"{name}/id_ends", where)


def _unfit(tensor: str, where: Path) -> ArtifactError:
    what = f"the tensor {tensor!r} is missing or does not fit {DESCRIPTION}"
    return ArtifactError(what, where=str(where), fix="run `compress eval` again")
