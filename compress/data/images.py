"""From PIL images to a model's input, as the model's preprocessing says.

The steps and their order are those of timm's evaluation transform and of open_clip's, in torchvision's functions, and
the result is the same to the last bit for images that are grey or RGB to begin with.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from PIL import Image
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

from compress.data.preprocessing import ImagePreprocessing
from compress.errors import DataError

PIL_MODES = {1: "L", 3: "RGB"}


def image_preprocessor(spec: ImagePreprocessing) -> Callable[[Sequence[Image.Image]], torch.Tensor]:
    """A function from a list of B images to the float32 tensor ``(B, channels, height, width)``.

    Each image is converted to grey or RGB, resized, cropped or padded; the batch is scaled to 0..1 and normalised. The
    function can be pickled, for workers.

    Raises:
        DataError: the model wants neither 1 nor 3 channels, which no image file has, or its mean or deviation has
            another number of channels.
    """
    if spec.channels not in PIL_MODES:
        raise DataError(
            f"the model reads {spec.channels} channels, but images have 1 (grey) or 3 (RGB)",
            fix="use a model with 1 or 3 input channels",
        )
    if not len(spec.mean) == len(spec.std) == spec.channels:
        raise DataError(
            f"the preprocessing has {len(spec.mean)} means and {len(spec.std)} deviations for {spec.channels} channels",
            fix="give one of each per channel",
        )
    return functools.partial(_preprocess, spec)


def _preprocess(spec: ImagePreprocessing, images: Sequence[Image.Image]) -> torch.Tensor:
    pixels = torch.from_numpy(np.stack([np.asarray(_fit(image, spec)) for image in images]))
    channels_last = pixels.reshape(*pixels.shape[:3], spec.channels)
    batch = channels_last.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)
    return F.normalize(batch, list(spec.mean), list(spec.std), inplace=True)


def _fit(image: Image.Image, spec: ImagePreprocessing) -> Image.Image:
    """The image in the model's mode and size."""
    mode = PIL_MODES[spec.channels]
    if image.mode != mode:
        image = image.convert(mode)
    size = _resized(image, spec)
    if size != [image.height, image.width]:
        image = F.resize(image, size, interpolation=InterpolationMode(spec.interpolation), antialias=True)
    return _crop_or_pad(image, spec)


def _resized(image: Image.Image, spec: ImagePreprocessing) -> list[int]:
    """The size before the crop, pixels: height and width, or the shorter edge alone."""
    height, width = (math.floor(edge / spec.crop_fraction) for edge in spec.size)
    if spec.resize == "squash":
        return [height, width]
    if spec.resize == "shortest" and height == width:
        # Not the general case below: torchvision rounds the longer edge down.
        return [height]
    ratios = image.height / height, image.width / width
    ratio = max(ratios) if spec.resize == "longest" else min(ratios)
    return [max(1, round(image.height / ratio)), max(1, round(image.width / ratio))]


def _crop_or_pad(image: Image.Image, spec: ImagePreprocessing) -> Image.Image:
    height, width = spec.size
    missing_height, missing_width = max(0, height - image.height), max(0, width - image.width)
    if missing_height or missing_width:
        # Left, top, right, bottom; an odd pixel goes to the right and the bottom.
        padding = [missing_width // 2, missing_height // 2, (missing_width + 1) // 2, (missing_height + 1) // 2]
        image = F.pad(image, padding, fill=[round(255 * spec.fill)] * spec.channels)
    if image.size != (width, height):
        image = F.center_crop(image, [height, width])
    return image
