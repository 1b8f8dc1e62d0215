"""Folders of images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compress.data.base import open_dataset
from compress.errors import DataError


def image(path: Path, grey: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (3, 2), grey).save(path)


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    root = tmp_path / "mes animaux 动物"
    for number, name in enumerate(["éléphant/1.png", "cat/b.PNG", "cat/a.bmp", "cat/deep/c.png"]):
        image(root / name, number)
    (root / "cat" / "Thumbs.db").write_bytes(b"no image")
    (root / ".cache").mkdir()
    (root / "notes.txt").touch()
    return root


def test_class_folders_are_classes_in_sorted_order(animals: Path) -> None:
    dataset = open_dataset(str(animals))
    assert dataset.kind == "image"
    assert dataset.class_names == ("cat", "éléphant")
    ids = [dataset[row].id for row in range(len(dataset))]
    assert ids == ["cat/a.bmp", "cat/b.PNG", "cat/deep/c.png", "éléphant/1.png"]
    assert dataset.labels == [0, 0, 0, 1]
    assert dataset[0].value.getpixel((0, 0)) == (2, 0, 0)


def test_numbered_class_folders_are_in_numerical_order(tmp_path: Path) -> None:
    for digit in (0, 2, 10):
        image(tmp_path / str(digit) / "x.png")
    assert open_dataset(str(tmp_path)).class_names == ("0", "2", "10")


def test_a_flat_folder_is_unlabelled(tmp_path: Path) -> None:
    image(tmp_path / "b.png")
    image(tmp_path / "a.png")
    dataset = open_dataset(str(tmp_path))
    assert (dataset.class_names, dataset.labels, [dataset[row].id for row in (0, 1)]) == (
        None,
        None,
        ["a.png", "b.png"],
    )


def test_the_fingerprint_moves_with_the_folder_and_sees_every_byte(animals: Path, tmp_path: Path) -> None:
    before = open_dataset(str(animals)).fingerprint
    moved = tmp_path / "elsewhere"
    shutil.copytree(animals, moved)
    assert open_dataset(str(moved)).fingerprint == before
    image(moved / "cat" / "a.bmp", 200)
    assert open_dataset(str(moved)).fingerprint != before
    image(moved / "cat" / "a.bmp", 2)
    (moved / "cat").rename(moved / "dog")
    assert open_dataset(str(moved)).fingerprint != before


def test_a_split_is_a_sub_folder(tmp_path: Path) -> None:
    for split, count in (("train", 2), ("test", 1)):
        for number in range(count):
            image(tmp_path / split / "cat" / f"{number}.png")
    assert len(open_dataset(f"{tmp_path}#train")) == 2
    assert len(open_dataset(f"{tmp_path}#test")) == 1
    with pytest.raises(DataError, match="the folder holds splits, not classes; add one of #test, #train"):
        open_dataset(str(tmp_path))


def test_folders_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no image"):
        open_dataset(str(tmp_path))
    (tmp_path / "reviews.csv").touch()
    with pytest.raises(DataError, match=r"tables, not images; name one: reviews\.csv"):
        open_dataset(str(tmp_path))
    image(tmp_path / "cat" / "1.png")
    (tmp_path / "dog").mkdir()
    with pytest.raises(DataError, match="the class folder 'dog' holds no image"):
        open_dataset(str(tmp_path))
    image(tmp_path / "stray.png")
    with pytest.raises(DataError, match=r"images lie beside class folders, such as 'stray\.png'"):
        open_dataset(str(tmp_path))


@pytest.mark.parametrize("length", [0, 4, 60])
def test_a_damaged_image_is_named_when_it_is_read(tmp_path: Path, length: int) -> None:
    image(tmp_path / "cat" / "1.png")
    path = tmp_path / "cat" / "2.png"
    Image.effect_noise((16, 16), 50).save(path)
    path.write_bytes(path.read_bytes()[:length])
    dataset = open_dataset(str(tmp_path))
    assert dataset[0].label == 0
    with pytest.raises(DataError) as caught:
        dataset[1]
    assert str(caught.value).startswith(f"{path}: the image cannot be read")


def test_sixteen_bit_images_are_refused_since_they_would_turn_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 3000, dtype=np.uint16)).save(tmp_path / "x.png")
    with pytest.raises(DataError, match=r"x\.png: images of mode 'I;16'"):
        open_dataset(str(tmp_path))[0]
