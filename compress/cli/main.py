"""The program: the table of commands, and the outermost layer, which turns what happened into an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType

import click
from click.shell_completion import shell_complete

from compress import __version__
from compress.cli.console import PROGRAM, Console
from compress.cli.lazy_group import CommandEntry, LazyGroup
from compress.cli.output import drop_stdout, reader_left
from compress.errors import CompressError, first_line, out_of_memory

DONE, BUG, USAGE, INTERRUPTED = 0, 1, 2, 130
_COMPLETION_VARIABLE = "_COMPRESS_COMPLETE"

# A new command is one file in this folder and one line here.
COMMANDS = {
    "run": CommandEntry("compress.cli.run:run", "Run a recipe: prune, fuse, evaluate, ... in one go.", "Recipes"),
    "validate": CommandEntry("compress.cli.validate:validate", "Check a recipe without running it.", "Recipes"),
    "prune": CommandEntry("compress.cli.prune:prune", "Prune one model into differing members.", "Stages"),
    "fuse": CommandEntry("compress.cli.fuse:fuse", "Fuse pruned members into one model.", "Stages"),
    "tune": CommandEntry("compress.cli.tune:tune", "Train a model, members, or a fused model.", "Stages"),
    "budget": CommandEntry(
        "compress.cli.budget:budget", "Give every input as many attention heads as it needs.", "Stages"
    ),
    "route": CommandEntry("compress.cli.route:route", "Let only the important tokens pass some blocks.", "Stages"),
    "eval": CommandEntry(
        "compress.cli.eval:evaluate", "Measure quality, uncertainty and cost, side by side.", "Stages"
    ),
    "calibrate": CommandEntry(
        "compress.cli.calibrate:calibrate", "Fit the temperature of a model, and when it should abstain.", "Stages"
    ),
    "sweep": CommandEntry(
        "compress.cli.sweep:sweep", "Compare heads kept, members and branch layers in one table.", "Stages"
    ),
    "bench": CommandEntry(
        "compress.cli.bench:bench", "Measure what variants of a model cost, before any training.", "Models"
    ),
    "predict": CommandEntry("compress.cli.predict:predict", "Classify inputs, with how sure the model is.", "Models"),
    "inspect": CommandEntry("compress.cli.inspect:inspect", "Show layers, kept heads, parameters and FLOPs.", "Models"),
    "export": CommandEntry("compress.cli.export:export", "Write a model as an ONNX or torch.export file.", "Models"),
    "push": CommandEntry("compress.cli.push:push", "Upload a model to the Hugging Face hub.", "Models"),
}

HELP = """Make a transformer classifier cheaper and better calibrated.

Prunes attention heads of a pretrained model into several differing copies, fuses the copies into one model, and
measures accuracy, calibration, detection of foreign inputs, and cost."""

EPILOG = """\b
Examples:
  compress run digits                        the whole story on real digits, under a minute
  compress prune MODEL --data D -o pruned    one stage; see compress prune --help
  compress COMMAND --help                    all options of a command

\b
The result goes to stdout, everything else to stderr.
Exit codes: 0 done, 1 a bug, 2 wrong usage or input, 3 a --fail-if gate failed, 130 interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: the command line without the program's name; ``sys.argv[1:]`` when None.

    Returns:
        The exit code: 0 done, 1 a bug, 2 wrong usage, recipe or input, 3 a failed gate, 130 interrupted.
    """
    console = Console()
    with _terminated_like_interrupted(), console.log_on_stderr():
        code = _guarded(list(sys.argv[1:] if arguments is None else arguments), console)
    if reader_left():
        drop_stdout()
    return code


def _guarded(arguments: list[str], console: Console) -> int:
    """Run the command and translate what it raises."""
    try:
        return _called(arguments or ["--help"], console)
    except CompressError as error:
        console.error(str(error))
        code = error.exit_code
    except click.ClickException as error:
        console.error(_usage_message(error))
        return USAGE
    except (KeyboardInterrupt, click.Abort):
        console.say("interrupted")
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost layer
        if isinstance(error, BrokenPipeError) and reader_left():
            return DONE
        if out_of_memory(error):
            console.error(f"the memory does not suffice ({first_line(error)}); pass a smaller --batch-size")
            code = USAGE
        else:
            report = "this is a bug; please report it with the output of --debug"
            console.error(f"{type(error).__name__}: {error} ({report})")
            code = BUG
    if console.closing_line is not None:
        console.say(console.closing_line())
    return code


def _called(arguments: list[str], console: Console) -> int:
    """Parse and run; click's own exits become their codes."""
    group = LazyGroup(entries=COMMANDS, help=HELP, epilog=EPILOG)
    group = click.version_option(__version__, message="%(version)s", prog_name=PROGRAM)(group)
    instruction = os.environ.get(_COMPLETION_VARIABLE)
    if instruction:
        return shell_complete(group, {}, PROGRAM, _COMPLETION_VARIABLE, instruction)
    try:
        with group.make_context(PROGRAM, arguments, obj=console) as context:
            group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return DONE


def _usage_message(error: click.ClickException) -> str:
    """Click's message as one sentence that says where the help is."""
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context is not None else PROGRAM
    return f"{message[:1].lower()}{message[1:]} (see {path} --help)"


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Within the block SIGTERM raises ``KeyboardInterrupt``, so that partial artifacts are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
