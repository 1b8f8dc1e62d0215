"""From the label cells of a data source to class names and class numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from compress.errors import DataError

INTEGER = re.compile(r"-?\d+")


def sorted_class_names(names: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in the order of the class numbers: numerically when all are integers, else by code point."""
    distinct = set(names)
    if all(INTEGER.fullmatch(name) for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))


def encode_labels(
    cells: Sequence[object], ids: Sequence[str], reference: str
) -> tuple[tuple[str, ...] | None, list[int] | None]:
    """Class names and the class number of every sample.

    A cell is a text, an integer, a truth value, a float without a fraction (``1.0`` is the class ``1``), or missing
    (None, NaN, an empty text). Cells are read without the blanks around them.

    Args:
        cells: one label per sample, as the source holds it.
        ids: name of each sample, for messages.
        reference: name of the data, for messages.

    Returns:
        ``(class_names, labels)``, or ``(None, None)`` when every cell is missing.

    Raises:
        DataError: some cells are missing and others are not, or a cell is no class (a fraction, a list).
    """
    names = [_class_name(cell, f"{reference}, row {sample_id}") for cell, sample_id in zip(cells, ids, strict=True)]
    if all(name is None for name in names):
        return None, None
    known: list[str] = []
    for name, sample_id in zip(names, ids, strict=True):
        if name is None:
            raise DataError(
                "the label is missing, though other rows have one",
                where=f"{reference}, row {sample_id}",
                fix="fill it in, or delete the row",
            )
        known.append(name)
    known = _without_decimals(known, ids, reference)
    class_names = sorted_class_names(known)
    numbers = {name: number for number, name in enumerate(class_names)}
    return class_names, [numbers[name] for name in known]


def _class_name(cell: object, where: str) -> str | None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, str):
        return cell.strip() or None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, int | float):
        return str(cell)
    raise DataError(
        f"the label is a {type(cell).__name__}, not a text or an integer",
        where=where,
        fix="choose another label column",
    )


def _without_decimals(names: list[str], ids: Sequence[str], reference: str) -> list[str]:
    """``1.0`` as ``1`` in a column of numbers, which is how integers look after a round trip through floats."""
    numbers = [_finite(name) for name in names]
    if any(number is None for number in numbers):
        return names
    for name, number, sample_id in zip(names, numbers, ids, strict=True):
        if number is not None and not number.is_integer():
            raise DataError(
                f"the label {name} is a fraction, not a class",
                where=f"{reference}, row {sample_id}",
                fix="choose another label column",
            )
    return [
        name if INTEGER.fullmatch(name) else str(int(number or 0)) for name, number in zip(names, numbers, strict=True)
    ]


def _finite(name: str) -> float | None:
    try:
        number = float(name)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
