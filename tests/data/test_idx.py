"""The MNIST format."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from compress.data.base import open_dataset
from compress.errors import DataError

PIXELS = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
LABELS = np.array([3, 1, 3, 0, 9], dtype=np.uint8)


def idx_bytes(array: np.ndarray, kind: int = 8) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("separator", ["-", "."])
def test_an_image_file_finds_its_labels(tmp_path: Path, suffix: str, separator: str) -> None:
    path = write(tmp_path / f"train-images{separator}idx3-ubyte{suffix}", idx_bytes(PIXELS))
    write(tmp_path / f"train-labels{separator}idx1-ubyte{suffix}", idx_bytes(LABELS))
    dataset = open_dataset(str(path))
    assert (len(dataset), dataset.kind, dataset.class_names) == (5, "image", ("0", "1", "3", "9"))
    sample = dataset[4]
    assert (sample.id, sample.label, sample.value.size) == ("4", 3, (3, 4))
    assert (np.asarray(sample.value) == PIXELS[4]).all()


def test_a_folder_has_the_splits_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "train-images-idx3-ubyte.gz", idx_bytes(PIXELS))
    write(tmp_path / "train-labels-idx1-ubyte.gz", idx_bytes(LABELS))
    write(tmp_path / "t10k-images-idx3-ubyte", idx_bytes(PIXELS[:2]))
    train, test = open_dataset(f"{tmp_path}#train"), open_dataset(f"{tmp_path}#test")
    assert (len(train), train.labels) == (5, [2, 1, 2, 0, 3])
    assert (len(test), test.labels, test.class_names) == (2, None, None)
    with pytest.raises(DataError, match="a split must be named; add #test or #train"):
        open_dataset(str(tmp_path))
    with pytest.raises(DataError, match="no idx file of the split 'val'; use #test or #train"):
        open_dataset(f"{tmp_path}#val")


def test_the_fingerprint_ignores_the_compression(tmp_path: Path) -> None:
    plain = write(tmp_path / "a-images-idx3-ubyte", idx_bytes(PIXELS))
    zipped = write(tmp_path / "b-images-idx3-ubyte.gz", idx_bytes(PIXELS))
    assert open_dataset(str(plain)).fingerprint == open_dataset(str(zipped)).fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the magic number is missing, not 00000803"),
        (idx_bytes(LABELS), "the magic number is 00000801, not 00000803"),
        (idx_bytes(PIXELS, kind=9), "the magic number is 00000903, not 00000803"),
        (idx_bytes(PIXELS)[:10], "the file is shorter than its header says"),
        (idx_bytes(PIXELS)[:-1], "the file is shorter than its header says"),
        (idx_bytes(PIXELS) + b"x", "the file is longer than its header says"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_does_not_fit_its_header_is_refused(
    tmp_path: Path, content: bytes, message: str, suffix: str
) -> None:
    path = write(tmp_path / f"train-images-idx3-ubyte{suffix}", content)
    with pytest.raises(DataError) as caught:
        open_dataset(str(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_header_that_declares_more_than_memory_is_refused(tmp_path: Path) -> None:
    content = struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 4)
    for suffix, message in (("", "the file is shorter than its header says"), (".gz", "declares .* with gunzip")):
        path = write(tmp_path / f"train-images-idx3-ubyte{suffix}", content)
        with pytest.raises(DataError, match=message):
            open_dataset(str(path))
        path.unlink()


@pytest.mark.parametrize("keep", [0.5, 0.0])
def test_a_cut_or_foreign_gzip_file_is_damaged(tmp_path: Path, keep: float) -> None:
    content = gzip.compress(idx_bytes(PIXELS))
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content[: int(len(content) * keep)] or b"not gzip")
    with pytest.raises(DataError, match="the file is damaged"):
        open_dataset(str(path))


def test_counts_of_images_and_labels_must_agree(tmp_path: Path) -> None:
    path = write(tmp_path / "train-images-idx3-ubyte", idx_bytes(PIXELS))
    labels = write(tmp_path / "train-labels-idx1-ubyte", idx_bytes(LABELS[:4]))
    with pytest.raises(DataError, match="holds 4 labels for the 5 images"):
        open_dataset(str(path))
    with pytest.raises(DataError, match="not a file of images"):
        open_dataset(str(labels))


@pytest.mark.skipif(
    "COMPRESS_SHARED_DATA" not in os.environ, reason="COMPRESS_SHARED_DATA names no folder of real data"
)
def test_real_fashion_mnist_is_read() -> None:
    dataset = open_dataset(f"{os.environ['COMPRESS_SHARED_DATA']}/fashion-mnist#test")
    assert len(dataset) == 10_000
    assert [list(dataset.labels or ()).count(label) for label in range(10)] == [1000] * 10
