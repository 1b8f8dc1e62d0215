"""Image preprocessing, against the transforms of timm and open_clip."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.transform import image_transform
from PIL import Image
from timm.data import create_transform

from compress.data.images import image_preprocessor
from compress.data.preprocessing import ImagePreprocessing
from compress.errors import DataError

MEAN, STD = (0.48, 0.45, 0.4), (0.22, 0.23, 0.24)
SHAPES = [(32, 32), (17, 40), (51, 23), (100, 64), (9, 9)]


def picture(height: int, width: int, mode: str = "RGB") -> Image.Image:
    channels = {"L": (), "RGB": (3,), "RGBA": (4,), "LA": (2,)}[mode]
    pixels = np.random.default_rng(height * width).integers(0, 256, (height, width, *channels), dtype=np.uint8)
    return Image.fromarray(pixels)


def spec(**changes: Any) -> ImagePreprocessing:
    return ImagePreprocessing(**{"size": (32, 32), "channels": 3, "mean": MEAN, "std": STD, **changes})


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (24, 40), (33, 19)])
@pytest.mark.parametrize("fraction", [1.0, 0.875, 0.95])
@pytest.mark.parametrize(("resize", "crop_mode"), [("shortest", "center"), ("squash", "squash"), ("longest", "border")])
def test_equals_timm(
    shape: tuple[int, int], size: tuple[int, int], fraction: float, resize: str, crop_mode: str
) -> None:
    # timm pads with the mean, a colour; the grey of the project's padding is the case of three equal means.
    mean = (0.4, 0.4, 0.4) if resize == "longest" else MEAN
    image = picture(*shape)
    oracle = create_transform(
        (3, *size), crop_pct=fraction, crop_mode=crop_mode, interpolation="bicubic", mean=mean, std=STD
    )
    ours = image_preprocessor(spec(size=size, resize=resize, crop_fraction=fraction, mean=mean, fill=0.4))([image])
    torch.testing.assert_close(ours[0], oracle(image), rtol=0, atol=0)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("channels", [1, 3])
def test_equals_timm_in_every_interpolation_and_in_grey(interpolation: str, channels: int) -> None:
    image = picture(50, 41, "L" if channels == 1 else "RGB")
    mean, std = MEAN[:channels], STD[:channels]
    oracle = create_transform((channels, 32, 32), crop_pct=0.9, interpolation=interpolation, mean=mean, std=std)
    wanted = spec(channels=channels, mean=mean, std=std, crop_fraction=0.9, interpolation=interpolation)
    torch.testing.assert_close(image_preprocessor(wanted)([image])[0], oracle(image), rtol=0, atol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [(32, 32), (24, 40)])
@pytest.mark.parametrize("resize", ["shortest", "squash", "longest"])
@pytest.mark.parametrize("fill", [0, 128])
def test_equals_open_clip(shape: tuple[int, int], size: tuple[int, int], resize: str, fill: int) -> None:
    image = picture(*shape)
    oracle = image_transform(size, is_train=False, mean=MEAN, std=STD, resize_mode=resize, fill_color=(fill,) * 3)
    ours = image_preprocessor(spec(size=size, resize=resize, fill=fill / 255))([image])
    torch.testing.assert_close(ours[0], oracle(image), rtol=0, atol=0)


def test_grey_padding() -> None:
    wanted = spec(size=(8, 8), channels=1, mean=(0.0,), std=(1.0,), resize="longest", fill=0.2)
    result = image_preprocessor(wanted)([Image.new("L", (8, 4), 255)])
    assert result[0, 0, 2:6].eq(1.0).all()
    assert torch.cat([result[0, 0, :2], result[0, 0, 6:]]).eq(51 / 255).all()


def test_a_very_thin_image_still_has_a_pixel() -> None:
    assert image_preprocessor(spec(resize="longest"))([picture(1, 1000)]).isfinite().all()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "1", "CMYK"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_colour_mode_is_converted(mode: str, channels: int) -> None:
    image = picture(20, 30).convert(mode)
    preprocess = image_preprocessor(spec(channels=channels, mean=MEAN[:channels], std=STD[:channels]))
    result = preprocess([image, image])
    assert (result.shape, result.dtype) == ((2, channels, 32, 32), torch.float32)
    assert result.is_contiguous()
    torch.testing.assert_close(result, preprocess([image.convert({1: "L", 3: "RGB"}[channels])] * 2))


def test_images_of_different_sizes_share_a_batch() -> None:
    images = [picture(*shape) for shape in SHAPES]
    preprocess = image_preprocessor(spec())
    together = preprocess(images)
    for row, image in enumerate(images):
        torch.testing.assert_close(together[row], preprocess([image])[0], rtol=0, atol=0)


@pytest.mark.parametrize("channels", [2, 4, 13])
def test_other_channel_counts_are_refused_before_any_image_is_seen(channels: int) -> None:
    with pytest.raises(DataError, match=f"the model reads {channels} channels, but images have 1"):
        image_preprocessor(spec(channels=channels, mean=(0.5,) * channels, std=(0.5,) * channels))


def test_a_mean_per_channel_is_needed() -> None:
    with pytest.raises(DataError, match="3 means and 3 deviations for 1 channels"):
        image_preprocessor(spec(channels=1))


def test_the_input_is_untouched_and_the_function_can_be_pickled() -> None:
    image = picture(32, 32)
    before = image.tobytes()
    preprocess = image_preprocessor(spec())
    copy = pickle.loads(pickle.dumps(preprocess))  # noqa: S301
    torch.testing.assert_close(copy([image]), preprocess([image]))
    assert image.tobytes() == before


def test_small_images_are_fast() -> None:
    images = [picture(28, 28, "L")] * 10_000
    preprocess = image_preprocessor(spec(size=(28, 28), channels=1, mean=(0.1,), std=(0.3,)))
    start = time.process_time()
    for first in range(0, len(images), 100):
        preprocess(images[first : first + 100])
    assert time.process_time() - start < 2.0
