"""Low contrast."""

from __future__ import annotations

import numpy as np
from PIL import Image

from compress.data.corruptions.pixels import to_image, to_pixels
from compress.data.corruptions.strength import Strengths

FACTOR = Strengths(small=(0.75, 0.5, 0.4, 0.3, 0.15), large=(0.4, 0.3, 0.2, 0.1, 0.05))


def corrupt(image: Image.Image, severity: int, generator: np.random.Generator) -> Image.Image:
    """Move every value towards the mean of its channel; factors after Hendrycks and Dietterich."""
    pixels = to_pixels(image)
    mean = pixels.mean(axis=(0, 1), keepdims=True)
    return to_image(mean + FACTOR.at(severity, image) * (pixels - mean))
