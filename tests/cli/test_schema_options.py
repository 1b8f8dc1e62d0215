from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import click
import pytest
from pydantic import Field

from compress.cli.help_pages import SectionedCommand
from compress.cli.main import main
from compress.cli.schema_options import read_options, schema_options
from compress.errors import UsageError
from compress.evaluation.options import Evaluate
from compress.fusion.options import Fuse
from compress.options import Options
from compress.pruning.options import Prune
from compress.runtime import Runtime


class Example(Options):
    """One field of every kind."""

    count: int = Field(3, ge=1, description="A count.")
    share: float | None = Field(None, gt=0.0, le=1.0, description="A share.")
    keep: int | float = Field(4, description="A count or a fraction.")
    method: Literal["one", "two"] = Field("one", description="A choice.")
    fast: bool = Field(True, description="On by default.")
    odd: bool = Field(False, description="Off by default.")
    words: tuple[str, ...] = Field((), description="Repeatable.")
    numbers: tuple[int, ...] = Field((1, 2), description="Repeatable numbers.")
    place: Path | None = Field(None, description="A path.")


def parsed(schema: type[Options], *arguments: str, defaults: bool = True) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    @click.command(cls=SectionedCommand)
    @schema_options(schema, "Things", defaults=defaults)
    def command(**values: Any) -> None:
        seen.update(values)

    command.main(list(arguments), standalone_mode=False)
    return seen


@pytest.mark.parametrize("schema", [Example, Prune, Fuse, Evaluate, Runtime])
def test_no_options_give_the_defaults(schema: type[Options]) -> None:
    assert read_options(schema, parsed(schema)) == schema()


def test_every_kind_of_option() -> None:
    values = parsed(
        Example,
        *("--count", "7", "--share", "0.5", "--keep", "0.25", "--method", "two", "--no-fast", "--odd"),
        *("--words", "a", "--words", "b", "--numbers", "5", "--place", "x y/z"),
    )
    expected = Example(
        count=7,
        share=0.5,
        keep=0.25,
        method="two",
        fast=False,
        odd=True,
        words=("a", "b"),
        numbers=(5,),
        place=Path("x y/z"),
    )
    assert read_options(Example, values) == expected


@pytest.mark.parametrize(("text", "value"), [("4", 4), ("0.33", 0.33), ("1.0", 1.0), ("1", 1), ("1e-1", 0.1)])
def test_counts_and_fractions_are_told_apart(text: str, value: float) -> None:
    keep = read_options(Prune, parsed(Prune, "--keep", text)).keep
    assert keep == value
    assert type(keep) is type(value)


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("11", 11), ("auto", "auto")])
def test_a_count_or_a_word(text: str, value: int | str) -> None:
    assert read_options(Prune, parsed(Prune, "--branch-layer", text)).branch_layer == value


@pytest.mark.parametrize("text", ["-1", "1.5", "Auto", ""])
def test_neither_a_count_nor_the_word(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a number from 0 on nor auto"):
        parsed(Prune, "--branch-layer", text)


@pytest.mark.parametrize("text", ["x", "nan", "inf", "", "1,5"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="neither a count"):
        parsed(Prune, "--keep", text)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [(["--count", "0"], "x>=1"), (["--share", "0"], "0.0<x<=1.0"), (["--share", "1.1"], "0.0<x<=1.0")],
)
def test_ranges_come_from_the_schema(arguments: list[str], part: str) -> None:
    with pytest.raises(click.BadParameter, match=part):
        parsed(Example, *arguments)


def test_a_value_that_only_the_schema_refuses_names_the_option() -> None:
    for text in ("0", "1.5", "-1", "0.0"):
        with pytest.raises(UsageError) as caught:
            read_options(Prune, parsed(Prune, "--keep", text))
        assert caught.value.where == "--keep"


def test_without_defaults_only_what_is_given_replaces_the_base() -> None:
    base = Runtime(device="cpu", dtype="bfloat16", batch_size=4)
    assert read_options(Runtime, parsed(Runtime, defaults=False), base=base) == base
    changed = read_options(Runtime, parsed(Runtime, "--batch-size", "9", defaults=False), base=base)
    assert changed == Runtime(device="cpu", dtype="bfloat16", batch_size=9)
    assert read_options(Example, parsed(Example, defaults=False)) == Example()


def test_the_help_page_has_every_description_default_and_range() -> None:
    @click.command(cls=SectionedCommand, examples=("example --count 3  and   blanks stay",))
    @schema_options(Example, "Things", skip=["place"])
    def command(**values: Any) -> None:
        """Do it."""

    page = command.get_help(click.Context(command, terminal_width=200))
    for name, field in Example.model_fields.items():
        assert (str(field.description) in page) == (name != "place")
    assert "[default: 3; x>=1]" in page
    assert "Repeatable numbers.  [default: 1, 2]" in page
    assert "--fast / --no-fast" in page
    assert page.index("Things:") < page.index("Messages and help:") < page.index("Examples:")
    assert "  example --count 3  and   blanks stay" in page


def test_a_field_without_an_option_is_a_programming_error() -> None:
    class Strange(Options):
        table: dict[str, int] = Field(default_factory=dict, description="No option for this.")

    with pytest.raises(TypeError, match="'table'"):
        parsed(Strange)


@pytest.mark.parametrize("command", ["tune", "budget", "route"])
def test_two_lengths_of_a_training_are_refused(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    call = [command, "nowhere", "-o", "out", "--data", "nowhere", "--steps", "5"]
    assert main([*call, "--epochs", "1"]) == 2
    assert "--steps and --epochs do not go together; give one of them" in capsys.readouterr().err
    assert main(call) == 2
    assert "--epochs" not in capsys.readouterr().err
