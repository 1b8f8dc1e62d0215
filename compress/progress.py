"""One progress bar for every loop: on stderr, silent when stderr is no terminal or the user asked for quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")
QUIET_VARIABLE = "COMPRESS_QUIET"


def progress(iterable: Iterable[T], label: str, total: int | None = None, unit: str = "batch") -> Iterable[T]:
    """Wrap ``iterable`` in a bar titled ``label``."""
    if silent():
        return iterable  # without tqdm's thread and lock
    return tqdm(iterable, desc=label, total=total, unit=unit, leave=False, dynamic_ncols=True)


def progress_bar(label: str, *, total: int, initial: int = 0, unit: str = "batch") -> tqdm[Any]:
    """A bar that is moved by hand, from ``initial`` to ``total``."""
    return tqdm(
        desc=label,
        total=total,
        initial=initial,
        unit=unit,
        disable=silent(),
        leave=False,
        dynamic_ncols=True,
    )


def first_process() -> bool:
    """Of the processes that a launcher started, the first one speaks; it names each by this variable."""
    return os.environ.get("RANK", "0") == "0"


def silent() -> bool:
    """Whether there are no bars: the user asked for quiet, stderr is no terminal, or another process speaks."""
    return bool(os.environ.get(QUIET_VARIABLE)) or not sys.stderr.isatty() or not first_process()
