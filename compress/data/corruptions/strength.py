"""How strong an image corruption is at a severity, for images of any size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

SMALL_EDGE, LARGE_EDGE = 32, 224


@dataclass(frozen=True)
class Strengths:
    """One number per severity, as published for CIFAR-10-C (32 pixels) and for ImageNet-C (224 pixels).

    Between the two sizes the numbers are interpolated over the logarithm of the shorter edge; smaller images get those
    of CIFAR-10-C, larger ones those of ImageNet-C.
    """

    small: tuple[float, float, float, float, float]
    large: tuple[float, float, float, float, float]

    def at(self, severity: int, image: Image.Image) -> float:
        """The number for an image at a severity of 1 to 5."""
        edges = [math.log(SMALL_EDGE), math.log(LARGE_EDGE)]
        numbers = [self.small[severity - 1], self.large[severity - 1]]
        return float(np.interp(math.log(min(image.size)), edges, numbers))
