"""Options that several commands have, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from compress.cli.help_pages import section_option
from compress.cli.result_file import checked_result_file
from compress.cli.several import assigned
from compress.data.reference import ROWS
from compress.errors import UsageError

if TYPE_CHECKING:
    from compress.data.base import Dataset
    from compress.transformer.model import Transformer

F = TypeVar("F", bound=Callable[..., Any])
MODEL_AND_DATA = "Model and data"
RESULT = "Result"
COMPUTING = "Computing"

_NAMED = re.compile(r"^(\w[\w.-]*)=(.+)$", re.DOTALL)


def stacked(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Apply decorators so that their options appear in this order."""

    def decorate(command: F) -> F:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def model_options() -> Callable[[F], F]:
    """``--weights --argument --preprocessing --label --template --reset-classifier``: how to open MODEL."""
    return stacked(
        section_option(
            MODEL_AND_DATA, "--weights", metavar="FILE|TAG", help="Weights of MODEL: a file, or the family's tag."
        ),
        section_option(
            MODEL_AND_DATA,
            "--argument",
            "arguments",
            multiple=True,
            metavar="NAME=VALUE",
            help="Argument of a family's architecture, such as img_size=28; repeatable.",
        ),
        section_option(
            MODEL_AND_DATA,
            "--preprocessing",
            multiple=True,
            metavar="NAME=VALUE",
            help="Preprocessing of a family's model, such as mean=[0.5]; repeatable.",
        ),
        section_option(
            MODEL_AND_DATA,
            "--label",
            "labels",
            multiple=True,
            metavar="NAME",
            help="Class name; repeat, in the order of the logits.",
        ),
        section_option(
            MODEL_AND_DATA,
            "--template",
            "templates",
            multiple=True,
            metavar="TEXT",
            help="Prompt template of a zero-shot model, with {} for the class; repeatable.",
        ),
        section_option(
            MODEL_AND_DATA,
            "--reset-classifier",
            is_flag=True,
            help="Start the classifier anew when its weights do not fit the labels.",
        ),
    )


def data_options(data_help: str, *, required: bool = True) -> Callable[[F], F]:
    """``--data --text-column --label-column``."""
    return stacked(
        section_option(MODEL_AND_DATA, "--data", required=required, metavar="DATA", help=data_help),
        section_option(MODEL_AND_DATA, "--text-column", metavar="NAME", help="Column of a table that holds the text."),
        section_option(
            MODEL_AND_DATA, "--label-column", metavar="NAME", help="Column of a table that holds the label."
        ),
    )


def output_options() -> Callable[[F], F]:
    """``-o/--out --overwrite``."""
    return stacked(
        section_option(
            RESULT,
            "-o",
            "--out",
            required=True,
            type=click.Path(path_type=Path),
            metavar="FOLDER",
            help="Folder to write.",
        ),
        section_option(RESULT, "--overwrite", is_flag=True, help="Replace an artifact that is there."),
    )


def json_option() -> Callable[[F], F]:
    """``--json``."""
    return section_option(
        RESULT,
        "--json",
        "json_target",
        callback=checked_result_file,
        metavar="FILE|-",
        help="Write the result as JSON to a file, or to stdout instead of a table.",
    )


def model_details(values: Mapping[str, Any]) -> dict[str, Any]:
    """What ``model_options`` were given, by the names that ``open_model`` knows."""
    plain = ("weights", "labels", "templates", "reset_classifier")
    details = {name: values[name] for name in plain if values.get(name)}
    assignments = {"arguments": "--argument", "preprocessing": "--preprocessing"}
    return details | {name: assigned(values[name], option) for name, option in assignments.items() if values.get(name)}


def open_given_model(reference: str, details: Mapping[str, Any]) -> str | Transformer:
    """The model to hand to a stage: opened when it needs more than its reference, else the reference."""
    if not details:
        return reference
    from compress.opening import open_model

    return open_model(reference, **details)


def open_given_data(reference: str, values: Mapping[str, Any]) -> Dataset:
    """The data set of ``--data``, with the columns of ``data_options``."""
    from compress.data.base import open_dataset

    return open_dataset(reference, text_column=values["text_column"], label_column=values["label_column"])


def named_references(values: Iterable[str], option: str) -> dict[str, str]:
    """Names of repeated values, each ``NAME=REFERENCE`` or a reference, which is called by the last part of its path.

    Raises:
        UsageError: two have the same name.
    """
    named: dict[str, str] = {}
    for value in values:
        match = None if Path(value).exists() else _NAMED.match(value)
        name, reference = match.groups() if match else (_last_part(value), value)
        if name in named:
            raise UsageError(f"two are called {name!r}", where=option, fix=f"name them: {name}-2={reference}")
        named[name] = reference
    return named


def _last_part(reference: str) -> str:
    """``photos`` of ``builtin:photos``, ``svhn`` of ``./data/svhn#test[:9]``, ``reviews`` of ``reviews.csv``."""
    path = Path(ROWS.sub("", reference).partition("#")[0])
    if path.name in ("", "..", "."):
        path = path.resolve()
    name = path.name if path.is_dir() else path.stem
    return re.sub(r"[^\w.-]+", "-", name.rpartition(":")[2]).strip("-.") or "data"


def recipe_options() -> Callable[[F], F]:
    """RECIPE and ``--set``."""
    return stacked(
        click.argument("recipe"),
        section_option(
            "Recipe",
            "--set",
            "assignments",
            multiple=True,
            metavar="STAGE.KEY=VALUE",
            help="Change a value: prune.keep=4, data.root=/data, model.weights=FILE, seed=1; repeatable.",
        ),
    )
