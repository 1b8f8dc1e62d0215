"""Columns of a long table in little memory: a million short texts take their bytes and not an object each."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import overload


class TextColumn(Sequence[str]):
    """Texts one after the other as UTF-8, decoded when they are read."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")

    def append(self, text: str) -> None:
        """Add a text; raises ``UnicodeEncodeError`` for half of a surrogate pair."""
        self._bytes += text.encode()
        self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]
        return self._read(places) if isinstance(places, int) else [self._read(place) for place in places]

    def _read(self, place: int) -> str:
        return self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]].decode()


class RowNames(Sequence[str]):
    """The numbers of rows, as texts when they are read."""

    def __init__(self) -> None:
        self._rows = array("Q")

    def append(self, row: int) -> None:
        """Add a row's number."""
        self._rows.append(row)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        found = self._rows[index]
        return str(found) if isinstance(found, int) else [str(row) for row in found]
