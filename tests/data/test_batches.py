"""Batches: order, shuffling, subsets, workers, errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from compress.data.base import open_dataset
from compress.data.batches import Batch, batches
from compress.data.images import image_preprocessor
from compress.data.preprocessing import ImagePreprocessing
from compress.data.sequence import SequenceDataset
from compress.errors import DataError

PREPROCESS = image_preprocessor(ImagePreprocessing(size=(8, 8), channels=1, mean=(0.5,), std=(0.5,)))


def lengths(texts: Sequence[str]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor([[len(text)] for text in texts])}


def texts(count: int) -> SequenceDataset:
    return SequenceDataset(
        ["x" * row for row in range(count)],
        "text",
        class_names=["even", "odd"],
        labels=[row % 2 for row in range(count)],
        ids=[f"r{row}" for row in range(count)],
    )


def positions(found: list[Batch]) -> list[list[int]]:
    return [batch.indices.tolist() for batch in found]


def flat(lists: list[list[int]]) -> list[int]:
    return [item for part in lists for item in part]


def test_batches_follow_the_data_set_and_the_last_is_smaller() -> None:
    found = list(batches(texts(5), lengths, batch_size=2))
    assert positions(found) == [[0, 1], [2, 3], [4]]
    assert found[1].inputs["input_ids"].tolist() == [[2], [3]]
    assert found[1].ids == ("r2", "r3")
    labels = found[1].labels
    assert labels is not None
    assert (labels.tolist(), labels.dtype) == ([0, 1], torch.int64)


def test_unlabelled_data_give_no_labels() -> None:
    (batch,) = batches(SequenceDataset(["a", "bc"], "text"), lengths, batch_size=8)
    assert batch.labels is None


@given(st.lists(st.integers(0, 6), min_size=1, max_size=20), st.integers(1, 5))
def test_a_bootstrap_keeps_its_repetitions_and_its_order(indices: list[int], batch_size: int) -> None:
    found = list(batches(texts(7), lengths, batch_size=batch_size, indices=indices))
    assert flat(positions(found)) == indices
    assert [row for batch in found for row in batch.inputs["input_ids"][:, 0].tolist()] == indices
    assert all(len(batch.ids) == batch_size for batch in found[:-1])


def test_the_global_random_state_is_untouched() -> None:
    before = torch.get_rng_state()
    list(batches(texts(9), lengths, batch_size=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_empty_data_are_refused_at_the_call() -> None:
    for dataset, indices in ((texts(0), None), (texts(3), [])):
        with pytest.raises(DataError, match="data: there are no samples"):
            batches(dataset, lengths, batch_size=2, indices=indices)


def test_labels_and_indices_are_checked_before_the_first_batch() -> None:
    def never(values: list[Any]) -> Any:
        raise RuntimeError("no sample may be preprocessed")

    dataset = SequenceDataset(["a", "b"], "text", class_names=["x"], labels=[0, -100], reference="r.csv#train")
    with pytest.raises(DataError, match=r"r\.csv#train, row 1: label -100 is outside 0\.\.0"):
        batches(dataset, never, batch_size=1)
    with pytest.raises(IndexError, match="index 3 is outside"):
        batches(texts(3), never, batch_size=1, indices=[0, 3])


def test_a_broken_image_is_one_sentence_when_its_batch_is_due(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    found = batches(open_dataset(str(tmp_path)), PREPROCESS, batch_size=1)
    assert next(found).ids == ("a.png",)
    with pytest.raises(DataError) as caught:
        next(found)
    assert str(caught.value).startswith(f"{tmp_path / 'b.png'}: the image cannot be read")
    assert "\n" not in str(caught.value)
