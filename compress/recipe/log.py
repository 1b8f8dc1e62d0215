"""What happened in each stage: ``OUT/logs/01-prune.log``, beside the artifact and never inside it."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from compress.artifact.durable import write_failure

LOG_FOLDER = "logs"
PROGRAM = "compress"


@contextlib.contextmanager
def stage_log(out: Path, folder: str, heading: str) -> Iterator[None]:
    """Append to the stage's log what the program says while the block runs, and how the block ended.

    Args:
        out: folder of the run.
        folder: the stage's folder within it.
        heading: what is about to run, first in the log.

    Raises:
        ArtifactError: the log cannot be opened.
    """
    path = out / LOG_FOLDER / f"{folder}.log"
    try:
        path.parent.mkdir(exist_ok=True)
        handler = _QuietFileHandler(path, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise write_failure(error, path) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger(PROGRAM)
    logger.addHandler(handler)
    began = time.monotonic()
    try:
        handler.note(heading)
        yield
        handler.note(f"complete after {time.monotonic() - began:.1f} s")
    except BaseException as error:
        handler.note(f"ended after {time.monotonic() - began:.1f} s by {type(error).__name__}: {error}", logging.ERROR)
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # what a full disk did not take is tried again
            handler.close()


class _QuietFileHandler(logging.FileHandler):
    """A log that cannot be written any more, as on a full disk, does not stop the stage or cover its own error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing."""

    def note(self, message: str, level: int = logging.INFO) -> None:
        """Write a line of the runner's own, which does not go to the terminal."""
        self.handle(logging.LogRecord(PROGRAM, level, __file__, 0, message, None, None))
