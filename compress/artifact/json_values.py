"""How much memory a JSON text will take, known before it is parsed."""

from __future__ import annotations

MOST_VALUES = 200_000
"""Largest number of values in an artifact's JSON files; 20,000 labels and all heads of a large model are a tenth."""


def check_values(content: bytes, most: int = MOST_VALUES) -> None:
    """Refuse a text with too many values, each of which takes dozens of bytes, and hundreds when it is wrong.

    Every value but the first follows a comma or an opening bracket; those within strings count too.

    Raises:
        ValueError: there may be more than ``most`` values.
    """
    if content.count(b",") + content.count(b"[") + content.count(b"{") > most:
        raise ValueError(f"it holds more than {most} values")
