"""What users name models and data by: ``timm:vit_base``, ``./my-vit``, ``reviews.csv#train``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from compress.home import expanded

WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9_+-]+):(?=.)")


def scheme_of(reference: str) -> str | None:
    """``timm`` of ``timm:vit_base``; None for a path, which has no scheme."""
    match = _SCHEME.match(reference)
    return match.group(1) if match else None


def absolute(reference: str, base: Path) -> str:
    """A path relative to ``base`` made absolute; a reference with a scheme (``builtin:digits``) stays as it is.

    What follows a ``#`` is kept, since it is part of the last name.
    """
    if scheme_of(reference) and not os.path.lexists(base / reference):
        return reference
    return os.path.normpath(base / expanded(reference))
