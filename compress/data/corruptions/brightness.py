"""Too much light."""

from __future__ import annotations

import numpy as np
from PIL import Image

from compress.data.corruptions.pixels import to_image, to_pixels
from compress.data.corruptions.strength import Strengths

ADDED = Strengths(small=(0.05, 0.1, 0.15, 0.2, 0.3), large=(0.1, 0.2, 0.3, 0.4, 0.5))


def corrupt(image: Image.Image, severity: int, generator: np.random.Generator) -> Image.Image:
    """Add to the value of the hue-saturation-value colours, up to 1; amounts after Hendrycks and Dietterich."""
    pixels = to_pixels(image)
    value = pixels.max(axis=2, keepdims=True)
    brighter = np.minimum(value + ADDED.at(severity, image), 1)
    # Hue and saturation stay when all channels grow by one factor; black has neither and becomes grey.
    black = value == 0
    return to_image(np.where(black, brighter, pixels * (brighter / np.where(black, 1, value))))
