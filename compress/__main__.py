"""``python -m compress`` and the console script."""

from __future__ import annotations

import sys

from compress.allocator import keep_memory
from compress.cli import main as program


def main() -> int:
    """The program in a process of its own, whose memory allocator it may therefore set."""
    keep_memory()
    return program.main()


if __name__ == "__main__":
    sys.exit(main())
