from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from compress import __version__
from compress.cli import main as program
from compress.cli.lazy_group import CommandEntry
from compress.cli.main import COMMANDS, main
from compress.errors import DataError, GateFailed
from compress.progress import QUIET_VARIABLE

ROOT = Path(__file__).parents[2]


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "compress", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Put a command ``toy`` that calls the given function into the table."""

    def install(function: Callable[[], None]) -> None:
        from compress.cli.console import message_options

        monkeypatch.setattr(f"{__name__}.toy", click.command("toy")(message_options(function)), raising=False)
        monkeypatch.setitem(sys.modules, "toy_commands", sys.modules[__name__])
        monkeypatch.setattr(program, "COMMANDS", {"toy": CommandEntry("toy_commands:toy", "A toy.", "Toys")})

    return install


def test_help_is_fast_and_imports_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys, time\n"
        "from compress.cli.main import main\n"
        "code = main(['--help'])\n"
        "heavy = {'torch', 'pydantic', 'yaml', 'numpy'} & set(sys.modules)\n"
        "print(code, sorted(heavy), time.process_time(), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    code_, heavy, seconds = done.stderr.split()
    assert (code_, heavy) == ("0", "[]")
    assert float(seconds) < 0.4
    for name, entry in COMMANDS.items():
        assert name in done.stdout
        assert entry.help in done.stdout


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: compress")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_help_page_with_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    page = capsys.readouterr().out
    assert "Examples:" in page
    assert f"compress {name} " in page.partition("Examples:")[2]
    assert "--debug" in page
    assert "--quiet" in page


def test_argument_errors_are_one_line_and_import_no_torch() -> None:
    lines = [
        ["prun"],
        ["prune"],
        ["prune", "m"],
        ["prune", "m", "--data", "d", "-o", "o", "--keep", "0"],
        ["prune", "m", "--data", "d", "-o", "o", "--kepe", "4"],
        ["prune", "m", "--data", "d", "-o", "o", "--members", "x"],
        ["prune", "m", "--data", "d", "-o", "o", "--method", "tailor"],
        ["eval", "m", "--data", "d", "--fail-if", "cal/ec > 0.05"],
        ["eval", "a/m", "b/m", "--data", "d"],
        ["fuse", "p", "-o", "o", "--mlp", "x"],
        ["run", "absent"],
        ["run", "absent.yaml"],
        ["validate", "digits", "--set", "prune.kep=4"],
        ["--nonsense"],
    ]
    code = (
        "import sys\n"
        "from compress.cli.main import main\n"
        f"codes = [main(line) for line in {lines!r}]\n"
        "print(set(codes), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{2} False"
    errors = done.stderr.splitlines()
    assert len(errors) == len(lines)
    assert all(error.startswith("compress: error: ") for error in errors)
    assert "did you mean 'prune'?" in errors[0]
    assert "--keep" in errors[3]
    assert "--keep" in errors[4]
    assert "taylor" in errors[6]
    assert "did you mean 'cal/ece'?" in errors[7]
    assert "did you mean 'keep'?" in errors[12]


class TestExitCodes:
    def test_a_user_error_is_one_line(self, command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        def fail() -> None:
            raise DataError("row 3 has\nno label", where="./x.csv", fix="add one")

        command(fail)
        assert main(["toy"]) == 2
        assert capsys.readouterr().err == "compress: error: ./x.csv: row 3 has no label; add one\n"
        assert main(["toy", "--debug"]) == 2
        assert "Traceback (most recent call last)" in capsys.readouterr().err

    def test_a_bug_asks_for_a_report(self, command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        def fail() -> None:
            raise ZeroDivisionError("of course")

        command(fail)
        assert main(["toy"]) == 1
        error = capsys.readouterr().err
        assert error.startswith("compress: error: ZeroDivisionError: of course")
        assert "report" in error
        assert "--debug" in error
        assert "Traceback" not in error

    def test_a_failed_gate(self, command: Callable[..., None]) -> None:
        def fail() -> None:
            raise GateFailed("cal/ece is 0.2")

        command(fail)
        assert main(["toy"]) == 3

    def test_an_interruption(self, command: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        def fail() -> None:
            raise KeyboardInterrupt

        command(fail)
        assert main(["toy"]) == 130
        assert capsys.readouterr().err == "compress: interrupted\n"

    def test_a_broken_pipe_that_is_not_stdout_is_a_bug(self, command: Callable[..., None]) -> None:
        def fail() -> None:
            raise BrokenPipeError("a worker died")

        command(fail)
        assert main(["toy"]) == 1

    def test_sigterm_is_an_interruption_and_the_handler_is_restored(
        self, command: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        def terminate() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

        command(terminate)
        before = signal.getsignal(signal.SIGTERM)
        assert main(["toy"]) == 130
        assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_is_no_error(unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    for arguments in ("--help", "prune --help", "validate digits"):
        line = f"{sys.executable} -m compress {arguments} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=ROOT)
        assert done.stdout.strip() == "0"
        assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error() -> None:
    line = f"{sys.executable} -m compress validate digits > /dev/full; echo $?"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "2"
    assert "cannot be written to stdout" in done.stderr


def test_python_m_compress_is_the_program() -> None:
    done = process("validate", "digits")
    assert done.returncode == 0
    assert "prune" in done.stdout


def test_shell_completion_lists_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_COMPRESS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "compress pr")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert main([]) == 0
    assert "plain,prune" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_a_call_leaves_logging_and_environment_as_they_were(
    command: Callable[..., None], caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("compress")
    before = (logger.level, logger.propagate, list(logger.handlers), os.environ.get(QUIET_VARIABLE))

    def talk() -> None:
        logging.getLogger("compress.toy").info("told")

    command(talk)
    assert main(["toy"]) == 0
    assert capsys.readouterr() == ("", "told\n")
    assert main(["toy", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert (logger.level, logger.propagate, list(logger.handlers), os.environ.get(QUIET_VARIABLE)) == before
