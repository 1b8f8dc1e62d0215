"""In-memory data sets, subsets and fingerprints."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from compress.data.sequence import PixelArray, SequenceDataset
from compress.data.subset import take


def texts(values: list[str], labels: list[int] | None = None, **keywords: str) -> SequenceDataset:
    names = None if labels is None else ["neg", "pos"]
    return SequenceDataset(values, "text", class_names=names, labels=labels, **keywords)


def test_samples_carry_value_label_and_id() -> None:
    dataset = SequenceDataset(["a", "b"], "text", class_names=["x", "y"], labels=[1, 0], ids=["r1", "r2"])
    assert [(s.value, s.label, s.id) for s in (dataset[0], dataset[1])] == [("a", 1, "r1"), ("b", 0, "r2")]
    assert texts(["a"])[0].label is None


def test_mismatched_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 labels for 2 values"):
        SequenceDataset(["a", "b"], "text", class_names=["x"], labels=[0])
    with pytest.raises(ValueError, match="together or not at all"):
        SequenceDataset(["a"], "text", labels=[0])


def test_the_fingerprint_does_not_depend_on_the_name() -> None:
    assert texts(["a", "b"], [0, 1], reference="here").fingerprint == texts(["a", "b"], [0, 1]).fingerprint


def test_the_fingerprint_is_the_documented_hash() -> None:
    expected = hashlib.sha256('["text", ["neg", "pos"]]\n1 3\né!'.encode()).hexdigest()
    assert texts(["é!"], [1]).fingerprint == expected


def test_the_fingerprint_sees_content_order_labels_and_boundaries() -> None:
    variants = [
        texts(["ab", "c"], [0, 1]),
        texts(["a", "bc"], [0, 1]),
        texts(["c", "ab"], [0, 1]),
        texts(["ab", "c"], [1, 0]),
        texts(["ab", "c"]),
        texts(["ab", "c", ""], [0, 1, 0]),
    ]
    assert len({dataset.fingerprint for dataset in variants}) == len(variants)


def test_the_fingerprint_of_images_sees_shape_and_pixels() -> None:
    pixels = np.arange(16, dtype=np.uint8)
    variants = [
        SequenceDataset([Image.fromarray(pixels.reshape(2, 8))], "image"),
        SequenceDataset([Image.fromarray(pixels.reshape(8, 2))], "image"),
        SequenceDataset([Image.fromarray(255 - pixels.reshape(2, 8))], "image"),
    ]
    assert len({dataset.fingerprint for dataset in variants}) == 3
    lazy = SequenceDataset(PixelArray(pixels.reshape(1, 2, 8)), "image")
    assert lazy.fingerprint == variants[0].fingerprint


@given(st.lists(st.integers(0, 4), max_size=8))
def test_take_follows_the_indices(indices: list[int]) -> None:
    whole = texts(["a", "b", "c", "d", "e"], [0, 1, 0, 1, 1])
    part = take(whole, indices)
    assert len(part) == len(indices)
    assert [part[row] for row in range(len(part))] == [whole[index] for index in indices]
    assert part.labels == [whole[index].label for index in indices]
    assert part.fingerprint != whole.fingerprint


def test_take_refuses_indices_outside() -> None:
    for index in (-1, 2):
        with pytest.raises(IndexError, match=f"index {index} is outside 0..1"):
            take(texts(["a", "b"]), [0, index])


def test_data_sets_can_be_sent_to_a_worker() -> None:
    dataset = take(texts(["a", "b"], [0, 1]), [1])
    copy = pickle.loads(pickle.dumps(dataset))  # noqa: S301
    assert copy[0] == dataset[0]
    assert copy.fingerprint == dataset.fingerprint
