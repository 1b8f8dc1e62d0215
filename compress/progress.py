"""One progress bar for every loop: on stderr, silent when stderr is no terminal or the user asked for quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")
QUIET_VARIABLE = "COMPRESS_QUIET"


def progress(iterable: Iterable[T], label: str, total: int | None = None, unit: str = "batch") -> Iterable[T]:
    """Wrap ``iterable`` in a bar titled ``label``."""
    silent = bool(os.environ.get(QUIET_VARIABLE)) or not sys.stderr.isatty()
    return tqdm(iterable, desc=label, total=total, unit=unit, disable=silent, leave=False, dynamic_ncols=True)
