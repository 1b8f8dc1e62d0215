from __future__ import annotations

from pathlib import Path

from compress.home import expanded
from compress.prediction.inputs import read_inputs


def test_the_home_folder_and_a_user_that_does_not_exist() -> None:
    assert expanded("~/x") == Path.home() / "x"
    assert expanded("a/~") == Path("a/~")
    assert expanded("~nobody-of-this-name/x") == Path("~nobody-of-this-name/x")


def test_a_text_that_begins_with_a_tilde_is_a_text() -> None:
    assert read_inputs(["~nobody says so"], "text")[0].value == "~nobody says so"
