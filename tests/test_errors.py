from __future__ import annotations

import pytest

from compress.errors import CompressError, first_line


def test_what_strangers_wrote_does_not_reach_the_terminal_as_control_characters() -> None:
    error = CompressError("holds \x1b[2J", where="a\x07b", fix="write é or 漢字")
    assert str(error) == "a\\x07b: holds \\x1b[2J; write é or 漢字"


def test_a_message_is_one_line() -> None:
    error = CompressError("holds\ntwo", where="a\nb.json", fix="write\nit again")
    assert str(error) == "a\\nb.json: holds two; write it again"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (ValueError("\n  one\x07 \ntwo"), "one\\x07"),
        (ValueError("x" * 300), "x" * 200),
        (KeyError(), "KeyError"),
        ("a\nb", "a"),
        ("", "no reason given"),
    ],
)
def test_the_first_line_of_a_foreign_error(said: BaseException | str, line: str) -> None:
    assert first_line(said) == line
