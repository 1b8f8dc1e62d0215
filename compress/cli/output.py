"""Results: a table or JSON on stdout, JSON to a file on request."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from compress.cli.result_file import STDOUT, write_result
from compress.errors import GateFailed, UsageError
from compress.progress import first_process

logger = logging.getLogger(__name__)


def emit(table: str, plain: Any, json_target: str | None) -> None:
    """Print a result; of several processes the first one does.

    Args:
        table: text for people; printed unless stdout is to carry JSON.
        plain: the result as JSON values.
        json_target: a file, ``-`` for stdout, or None for no JSON.

    Raises:
        UsageError: the file or stdout cannot be written.
    """
    if not first_process():
        return
    if json_target == STDOUT:
        _print(_json(plain))
        return
    _print(table.rstrip("\n") + "\n")  # first, since a file may yet fail
    if json_target is not None:
        write_result(Path(json_target), _json(plain).encode())


def raise_for_gates(messages: Sequence[str]) -> None:
    """Raise ``GateFailed`` when there are messages; several are logged one per line first."""
    if len(messages) > 1:
        for message in messages:
            logger.error(message)
        raise GateFailed(f"{len(messages)} gates failed")
    if messages:
        raise GateFailed(messages[0])


def _json(plain: Any) -> str:
    return json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _print(text: str) -> None:
    """Write to stdout. A reader that has left (``| head``) is no error, and what follows still happens."""
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        raise UsageError(
            f"the result cannot be written to stdout ({error.strerror})", fix="write it to a file"
        ) from None


def reader_left() -> bool:
    """Whether stdout is a pipe that nobody reads any more."""
    try:
        sys.stdout.flush()
        watch = select.poll()
        watch.register(sys.stdout.fileno(), 0)
        return any(events & select.POLLERR for _, events in watch.poll(0))
    except BrokenPipeError:
        return True
    except (AttributeError, OSError):  # no poll on this system; stdout has no descriptor
        return False


def drop_stdout() -> None:
    """Let what is still to be written vanish, so that Python's own flush at the end does not fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
