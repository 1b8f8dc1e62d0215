"""Where a family's files may be at fault, and where only the project can be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from compress.errors import ModelError, first_line

# What the families' libraries, and whoever reads their configurations, raise on values of a wrong type or kind.
WRONG_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@contextlib.contextmanager
def reading_values(where: str) -> Iterator[None]:
    """Within the block values of a model's own files are read; they may be of any type, and need not make sense.

    Args:
        where: the model, for the message.

    Raises:
        ModelError: in the place of an error that such values cause.
    """
    try:
        yield
    except WRONG_VALUES as error:
        raise ModelError(
            f"cannot be opened ({type(error).__name__}: {first_line(error)})",
            where=where,
            fix="check its config.json and its arguments; --debug shows where it failed",
        ) from error
