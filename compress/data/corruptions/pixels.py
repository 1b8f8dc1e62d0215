"""Images as arrays of numbers between 0 and 1, and back."""

from __future__ import annotations

import numpy as np
from PIL import Image

GREY_MODES = ("1", "L", "LA", "La")


def plain(image: Image.Image) -> Image.Image:
    """The image in grey or RGB; transparency and palettes, which a model does not read either, are dropped."""
    mode = "L" if image.mode in GREY_MODES else "RGB"
    return image if image.mode == mode else image.convert(mode)


def to_pixels(image: Image.Image) -> np.ndarray:
    """Grey or RGB values ``(height, width, 1 | 3)`` float64 in 0..1."""
    pixels = np.asarray(plain(image), dtype=np.float64) / 255
    return pixels.reshape(*pixels.shape[:2], -1)


def to_image(pixels: np.ndarray) -> Image.Image:
    """The image of ``(height, width, 1 | 3)``; values outside 0..1 are clipped."""
    values = np.round(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
