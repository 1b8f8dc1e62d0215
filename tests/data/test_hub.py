"""Hub data sets, from rows that are made here: no test uses the network."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from PIL import Image

from compress.data.base import open_dataset
from compress.data.hub import from_rows
from compress.data.reference import ColumnChoice
from compress.errors import DataError

CLASSES = datasets.ClassLabel(names=["neg", "pos"])


def text_rows(labels: list[int]) -> datasets.Dataset:
    features = datasets.Features({"sentence": datasets.Value("string"), "mood": CLASSES})
    return datasets.Dataset.from_dict({"sentence": [f"t{row}" for row in range(len(labels))], "mood": labels}, features)


def test_class_labels_give_the_names() -> None:
    dataset = from_rows(text_rows([1, 0, 1]), "hf:x#train", ColumnChoice())
    assert (dataset.kind, dataset.class_names, dataset.labels) == ("text", ("neg", "pos"), [1, 0, 1])
    assert (dataset[1].value, dataset[1].id) == ("t1", "1")


def test_minus_one_is_a_missing_label() -> None:
    assert from_rows(text_rows([-1, -1]), "hf:x#test", ColumnChoice()).labels is None
    with pytest.raises(DataError, match="hf:x#test, row 1: the label is missing"):
        from_rows(text_rows([0, -1]), "hf:x#test", ColumnChoice())


def test_an_image_column_gives_images() -> None:
    features = datasets.Features({"img": datasets.Image(), "caption": datasets.Value("string"), "label": CLASSES})
    images = [Image.new("RGB", (4, 3), color) for color in ("red", "blue")]
    rows = datasets.Dataset.from_dict({"img": images, "caption": ["a", "b"], "label": [0, 1]}, features)
    dataset = from_rows(rows, "hf:x#train", ColumnChoice())
    assert (dataset.kind, dataset[1].value.getpixel((0, 0)), dataset[1].label) == ("image", (0, 0, 255), 1)
    assert from_rows(rows, "hf:x#train", ColumnChoice(text="caption"))[0].value == "a"


def test_a_missing_value_is_named() -> None:
    rows = datasets.Dataset.from_dict({"text": ["a", None]})
    with pytest.raises(DataError, match="hf:x#train, row 1: column 'text' is missing"):
        from_rows(rows, "hf:x#train", ColumnChoice())[1]


def test_a_local_copy_is_opened_and_wrong_splits_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "train.csv").write_text("text,label\ngood,1\nbad,0\n", encoding="utf-8")
    dataset = open_dataset(f"hf:{tmp_path / 'reviews'}#train")
    assert (dataset.labels, dataset[0].value) == ([1, 0], "good")
    for reference, message in {
        f"hf:{tmp_path / 'reviews'}#tset": "the data cannot be loaded",
        f"hf:{tmp_path / 'absent'}#train": "the data cannot be loaded",
        f"hf:{tmp_path / 'reviews'}": "a split must be named",
    }.items():
        with pytest.raises(DataError, match=message) as caught:
            open_dataset(reference)
        assert "\n" not in str(caught.value)
