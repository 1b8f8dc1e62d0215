"""The data that come with scikit-learn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from compress.data.base import open_dataset
from compress.errors import DataError


def test_the_digits_are_split_without_overlap_and_by_class() -> None:
    splits = {name: open_dataset(f"builtin:digits#{name}") for name in ("train", "calibration", "test")}
    assert {name: len(split) for name, split in splits.items()} == {"train": 1097, "calibration": 200, "test": 500}
    ids = [split[row].id for split in splits.values() for row in range(len(split))]
    assert sorted(map(int, ids)) == list(range(1797))
    for split in splits.values():
        share = np.array([Counter(split.labels)[digit] for digit in range(10)]) / len(split)
        assert np.abs(share - 0.1).max() < 0.01


def test_a_digit_is_the_image_of_scikit_learn() -> None:
    dataset = open_dataset("builtin:digits#test")
    images, classes = load_digits(return_X_y=True)
    assert dataset.class_names == tuple("0123456789")
    for row in (0, 7, 499):
        sample = dataset[row]
        assert isinstance(sample.value, Image.Image)
        assert (sample.value.mode, sample.value.size) == ("L", (8, 8))
        assert np.abs(np.asarray(sample.value) - images[int(sample.id)].reshape(8, 8) * 255 / 16).max() <= 0.5
        assert sample.label == classes[int(sample.id)]
    assert max(np.asarray(dataset[0].value).ravel()) == 255


def test_the_splits_never_change() -> None:
    """The demo model was trained on the training split: another split would leak its test images."""
    prints = {
        split: open_dataset(f"builtin:digits#{split}").fingerprint[:16] for split in ("train", "calibration", "test")
    }
    assert prints == {"train": "fac11aa135b23171", "calibration": "f3cf424efcf7f529", "test": "d4ea25a4d2c02f60"}


def test_the_photos_are_grey_patches_without_labels() -> None:
    dataset = open_dataset("builtin:photos")
    assert (len(dataset), dataset.class_names, dataset.labels) == (520, None, None)
    first = dataset[0]
    assert (first.id, first.label, first.value.size, first.value.mode) == ("china-0-0", None, (8, 8), "L")
    assert len({dataset[row].id for row in range(520)}) == 520
    assert np.std([np.asarray(dataset[row].value).mean() for row in range(0, 520, 10)]) > 10
    assert dataset.fingerprint == open_dataset("builtin:photos").fingerprint


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("builtin:digits", "a split must be named; use builtin:digits#train or"),
        ("builtin:digits#val", "the digits have no split 'val'; use builtin:digits#train or"),
        ("builtin:photos#test", "the photos have no splits"),
        ("builtin:digit#test", "no built-in data set 'digit'; did you mean 'digits'?"),
    ],
)
def test_a_wrong_name_or_split_is_answered_with_the_right_ones(reference: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        open_dataset(reference)
    assert message in str(caught.value)
