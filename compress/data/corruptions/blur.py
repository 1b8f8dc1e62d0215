"""Gaussian blur."""

from __future__ import annotations

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from compress.data.corruptions.pixels import to_image, to_pixels
from compress.data.corruptions.strength import Strengths

DEVIATION = Strengths(small=(0.4, 0.6, 0.7, 0.8, 1.0), large=(1.0, 2.0, 3.0, 4.0, 6.0))


def corrupt(image: Image.Image, severity: int, generator: np.random.Generator) -> Image.Image:
    """Blur; deviations in pixels, after Hendrycks and Dietterich. Beyond the border the outermost pixels repeat."""
    deviation = DEVIATION.at(severity, image)
    return to_image(gaussian_filter(to_pixels(image), (deviation, deviation, 0), mode="nearest"))
