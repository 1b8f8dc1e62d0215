"""JPEG artefacts."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from compress.data.corruptions.pixels import plain
from compress.data.corruptions.strength import Strengths

QUALITY = Strengths(small=(80, 65, 58, 50, 40), large=(25, 18, 15, 10, 7))


def corrupt(image: Image.Image, severity: int, generator: np.random.Generator) -> Image.Image:
    """Save as JPEG and read again; qualities after Hendrycks and Dietterich."""
    file = io.BytesIO()
    plain(image).save(file, "JPEG", quality=round(QUALITY.at(severity, image)))
    with Image.open(file) as saved:
        saved.load()
        return saved.copy()
