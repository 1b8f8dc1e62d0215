"""Comma- and tab-separated files."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compress.data.rows import distinct, not_utf8
from compress.errors import DataError

SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
"""What other programs put between cells."""


class DelimitedFile:
    """A .csv or .tsv file with a header line, UTF-8 with or without a byte order mark; empty lines are left out.

    Cells with the separator, quotes or line breaks are quoted as in RFC 4180. A .tsv file that breaks these rules is
    read without quoting, as such files are often written. An empty cell is an empty text.

    Args:
        path: the file.
        separator: a comma or a tab.

    Raises:
        DataError: no header, or one with another separator; a row with another number of cells than the header; a
            broken quote; not UTF-8.
    """

    def __init__(self, path: Path, separator: str) -> None:
        self._path, self._separator, self._quoted = path, separator, True
        self._quoted = separator != "\t" or self._well_formed()
        header = next(self._records(), None)
        if header is None:
            raise DataError("the table is empty", where=str(path), fix="begin it with a line of column names")
        self.columns = distinct(header[1], path)
        alone = self.columns[0] if len(self.columns) == 1 else ""
        other = next((sign for sign in SEPARATORS if sign != separator and sign in alone), None)
        if other is not None:
            raise DataError(
                f"the header is one cell with {SEPARATORS[other]} in it, {alone!r}",
                where=str(path),
                fix="separate the cells of a .csv by commas, of a .tsv by tabs",
            )

    def rows(self, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The cells of ``columns`` with the number of the line on which the row begins."""
        places = [self.columns.index(column) for column in columns]
        records = self._records()
        next(records)
        for line, cells in records:
            yield line, tuple(cells[place] for place in places)

    def _well_formed(self) -> bool:
        try:
            for _ in self._records():
                pass
        except DataError:
            return False
        return True

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The header and every row, each with the line on which it begins."""
        width = None
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            # Strict, since otherwise a quote that is never closed silently swallows the rest of the file.
            reader = csv.reader(
                file,
                delimiter=self._separator,
                quoting=csv.QUOTE_MINIMAL if self._quoted else csv.QUOTE_NONE,
                strict=True,
            )
            while True:
                line = reader.line_num + 1
                try:
                    cells = next(reader, None)
                except csv.Error as error:
                    what, fix = "broken quoting", 'close the quote, and write a quote within a cell as ""'
                    if "field limit" in str(error):
                        what = f"a quote that is never closed, or more than {csv.field_size_limit():,} characters"
                        fix += ", or cut the text"
                    raise DataError(
                        f"{what} in the row that begins here ({error})", where=f"{self._path}:{line}", fix=fix
                    ) from None
                except UnicodeDecodeError:
                    raise self._not_utf8() from None
                if cells is None:
                    return
                if not cells:
                    continue
                width = width or len(cells)
                if len(cells) != width:
                    raise DataError(
                        f"{len(cells)} cells where the header has {width}",
                        where=f"{self._path}:{line}",
                        fix="quote cells that hold the separator",
                    )
                yield line, cells

    def _not_utf8(self) -> DataError:
        """The first line that is not UTF-8: the reader decodes ahead of its rows and cannot tell."""
        with self._path.open("rb") as file:
            for line, content in enumerate(file, start=1):
                try:
                    content.decode()
                except UnicodeDecodeError as error:
                    return not_utf8(self._path, line, error)
        return DataError("not UTF-8", where=str(self._path), fix="save the file as UTF-8")
