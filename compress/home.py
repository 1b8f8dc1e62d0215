"""Paths that begin with ``~``."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with the home folder in the place of a leading ``~``.

    Where there is no such user the text is taken as it stands, as a shell does; ``Path.expanduser`` would raise.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111
