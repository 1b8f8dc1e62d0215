"""Gaussian noise."""

from __future__ import annotations

import numpy as np
from PIL import Image

from compress.data.corruptions.pixels import to_image, to_pixels
from compress.data.corruptions.strength import Strengths

DEVIATION = Strengths(small=(0.04, 0.06, 0.08, 0.09, 0.10), large=(0.08, 0.12, 0.18, 0.26, 0.38))


def corrupt(image: Image.Image, severity: int, generator: np.random.Generator) -> Image.Image:
    """Add normal noise to every channel of every pixel; deviations on 0..1 after Hendrycks and Dietterich."""
    pixels = to_pixels(image)
    return to_image(pixels + DEVIATION.at(severity, image) * generator.standard_normal(pixels.shape))
