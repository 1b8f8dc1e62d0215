"""What the outermost layer and the commands share during one call: quiet, debug, and the closing line."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from compress.cli.help_pages import HELP_SECTION, section_option

F = TypeVar("F", bound=Callable[..., Any])
PROGRAM = "compress"


@dataclass
class Console:
    """The state of one call of the program.

    Attributes:
        debug: show tracebacks and debug messages.
        quiet: no progress bars; warnings and errors only.
        closing_line: makes the last line on stderr of a call that fails or is interrupted.
    """

    debug: bool = False
    quiet: bool = False
    closing_line: Callable[[], str] | None = None

    @contextlib.contextmanager
    def log_on_stderr(self) -> Iterator[None]:
        """Within the block the program's log goes to stderr; afterwards logging is as it was."""
        logger = logging.getLogger(PROGRAM)
        before = (logger.level, logger.propagate, logger.handlers)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.propagate, logger.handlers = False, [handler]
        self.set_log_level()
        try:
            yield
        finally:
            level, logger.propagate, logger.handlers = before
            logger.setLevel(level)

    def set_log_level(self) -> None:
        """Show as much as was asked for; other handlers, such as the log of a stage, hear what ``quiet`` hides."""
        logger = logging.getLogger(PROGRAM)
        logger.setLevel(logging.DEBUG if self.debug else logging.INFO)
        for handler in logger.handlers:
            handler.setLevel(logging.WARNING if self.quiet and not self.debug else logging.NOTSET)

    def say(self, message: str) -> None:
        """Write one line to stderr; nobody may be reading it."""
        with contextlib.suppress(BrokenPipeError):
            click.echo(f"{PROGRAM}: {' '.join(message.split())}", err=True)

    def error(self, message: str) -> None:
        """Write an error, with the traceback of the exception being handled if ``--debug`` was given."""
        if self.debug:
            traceback.print_exc()
        self.say(f"error: {message}")


def _set(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    console = context.find_object(Console)
    if not value or console is None:
        return
    if parameter.name == "debug":
        console.debug = True
    else:
        from compress.progress import QUIET_VARIABLE

        console.quiet = True
        if QUIET_VARIABLE not in os.environ:
            os.environ[QUIET_VARIABLE] = "1"
            context.find_root().call_on_close(lambda: os.environ.pop(QUIET_VARIABLE, None))
    console.set_log_level()


def message_options(command: F) -> F:
    """Add ``--quiet`` and ``--debug``; they reach the ``Console`` and not the command's function."""
    for name, help_text in (
        ("--debug", "Show a traceback with every error, and debug messages."),
        ("--quiet", "No progress bars; warnings and errors only."),
    ):
        command = section_option(
            HELP_SECTION, name, is_flag=True, is_eager=True, expose_value=False, callback=_set, help=help_text
        )(command)
    return command
