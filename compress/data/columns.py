"""Which column of a table holds the texts, and which the classes."""

from __future__ import annotations

from collections.abc import Sequence

from compress.errors import DataError
from compress.registry import nearest

TEXT_NAMES = ("text", "sentence", "review", "content", "document", "comment", "message")
LABEL_NAMES = ("label", "labels", "class", "category", "target")


def choose_text_column(columns: Sequence[str], chosen: str | None, where: str) -> str:
    """The chosen column, else the first of ``TEXT_NAMES`` (in any case of letters), else the only column.

    Args:
        columns: all columns but the one of the labels.
        chosen: the user's choice.
        where: name of the table, for messages.

    Raises:
        DataError: the chosen column does not exist, or none can be guessed.
    """
    if chosen is not None:
        return _existing(columns, chosen, "--text-column", where)
    guess = _first_named(columns, TEXT_NAMES)
    if guess is None and len(columns) == 1:
        return columns[0]
    if guess is None:
        raise DataError(
            "no column looks like the text" if columns else "there is no column of texts",
            where=where,
            fix=f"name it with --text-column: {', '.join(columns)}" if columns else "add one",
        )
    return guess


def choose_label_column(columns: Sequence[str], chosen: str | None, where: str) -> str | None:
    """The chosen column, else the first of ``LABEL_NAMES`` (in any case of letters), else None: unlabelled.

    Raises:
        DataError: the chosen column does not exist.
    """
    if chosen is not None:
        return _existing(columns, chosen, "--label-column", where)
    return _first_named(columns, LABEL_NAMES)


def _existing(columns: Sequence[str], chosen: str, option: str, where: str) -> str:
    if chosen not in columns:
        raise DataError(
            f"there is no column {chosen!r} for {option}",
            where=where,
            fix=nearest(chosen, columns) if columns else None,
        )
    return chosen


def _first_named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    by_lower_case = {column.strip().lower(): column for column in reversed(columns)}
    return next((by_lower_case[name] for name in names if name in by_lower_case), None)
