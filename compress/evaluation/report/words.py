"""Figures as readers see them: rounded, with units, in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

DASH = "—"
# Keeps a number and its unit on one line.
SPACE = "\N{NO-BREAK SPACE}"
_TRAILING_ZEROS = re.compile(r"\.0+(?!\d)|(\.\d*?)0+(?!\d)")
_PREFIXES = ("", "k", "M", "G", "T", "P")


def percent(share: float) -> str:
    """``94.2 %``; more digits after the point where one would hide a small share."""
    digits = 1 if share == 0 or abs(share) >= 0.0095 else 2 if abs(share) >= 0.00095 else 3
    return f"{share * 100:.{digits}f}{SPACE}%"


def decimal(value: float) -> str:
    """``0.213``; two significant digits of what is tiny, three of what is large."""
    if value and abs(value) < 0.001:
        return f"{value:.2g}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.2e}"


def quantity(value: float) -> str:
    """Three significant digits and a prefix: ``86.6 M``."""
    position = 0
    while value >= 999.5 and position < len(_PREFIXES) - 1:
        value, position = value / 1000, position + 1
    if not position:
        return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.3g}"
    return f"{_significant(value)}{SPACE}{_PREFIXES[position]}"


def size(value: float) -> str:
    """``3.2 MB``."""
    text = quantity(value)
    return f"{text}B" if text[-1].isalpha() else f"{text}{SPACE}B"


def milliseconds(value: float) -> str:
    """``12.3 ms``."""
    return f"{_significant(value)}{SPACE}ms"


def times(ratio: float) -> str:
    """``1.21×``."""
    return f"{ratio:.2f}×" if ratio < 9.995 else f"{ratio:.0f}×"


def points(difference: float) -> str:
    """A difference of two shares: ``+1.2 points``, ``−0.4 points``."""
    return signed(f"{difference * 100:+.1f}{SPACE}points")


def tick(show: Callable[[float], str]) -> Callable[[float, object], str]:
    """Labels of an axis: like the figures, without needless zeros."""
    return lambda value, _: _TRAILING_ZEROS.sub(r"\1", show(value))


def signed(difference: str) -> str:
    """The text with a minus sign in place of a hyphen."""
    return difference.replace("-", "−")


def listed(names: Sequence[str]) -> str:
    """``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def counted(number: int, one: str, many: str) -> str:
    """``1 input``, ``1,200 inputs``."""
    return f"{number:,} {one if number == 1 else many}"


def interval(low: float, high: float, show: Callable[[float], str]) -> str:
    """``91.0 – 95.2 %``: the unit once."""
    first, second = show(low), show(high)
    number, gap, unit = first.rpartition(SPACE)
    if gap and second.endswith(f"{SPACE}{unit}"):
        first = number
    return f"{first} – {second}"


def _significant(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
