"""The rows of a table file, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from compress.errors import DataError, first_line


class TableFile(Protocol):
    """A table that is read row by row.

    Attributes:
        columns: names of all columns, distinct.
    """

    @property
    def columns(self) -> tuple[str, ...]: ...

    def rows(self, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """For every row its number, as ``open_table`` defines it, and its cells in ``columns``; missing is None."""
        ...


class JsonLinesFile:
    """A file with one JSON object per line, UTF-8 with or without a byte order mark; empty lines are left out.

    Columns are the keys of all objects. A key that an object lacks is a missing cell.

    Raises:
        DataError: a line is no JSON object, or the file is not UTF-8.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.columns = tuple(dict.fromkeys(key for _, record in self._objects() for key in record))

    def rows(self, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The cells of ``columns`` with the number of their line."""
        for line, record in self._objects():
            yield line, tuple(record.get(column) for column in columns)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                    record = json.loads(text) if text.strip() else None
                except UnicodeDecodeError as error:
                    raise not_utf8(self._path, number, error) from None
                except (ValueError, RecursionError) as error:
                    raise DataError(
                        f"not JSON ({error})", where=f"{self._path}:{number}", fix="correct the line"
                    ) from None
                if record is None and not text.strip():
                    continue
                if not isinstance(record, dict):
                    raise DataError(
                        f"a {type(record).__name__}, not an object",
                        where=f"{self._path}:{number}",
                        fix='write each row as {"text": …, "label": …}',
                    )
                yield number, record


class ParquetFile:
    """A parquet file, read in blocks of rows.

    Raises:
        DataError: the file is damaged or has two columns of the same name.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise damaged_parquet(path, error) from None
        self._path = path
        self.columns = distinct(self._file.schema_arrow.names, path)

    def rows(self, columns: tuple[str, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """The cells of ``columns`` with the number of their row, from 1."""
        import pyarrow as pa

        row = 0
        try:
            for block in self._file.iter_batches(columns=list(columns)):
                for cells in zip(*(block.column(name).to_pylist() for name in columns), strict=True):
                    row += 1
                    yield row, cells
        except (pa.ArrowException, OSError) as error:
            raise damaged_parquet(self._path, error) from None


def distinct(names: list[str], path: Path) -> tuple[str, ...]:
    """``names``; raises ``DataError`` when one occurs twice."""
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"two columns are called {name!r}", where=str(path), fix="rename one of them")
    return tuple(names)


def not_utf8(path: Path, line: int, error: UnicodeDecodeError) -> DataError:
    """The error for a line that is not UTF-8."""
    byte = error.object[error.start]
    return DataError(f"not UTF-8 (byte 0x{byte:02x})", where=f"{path}:{line}", fix="save the file as UTF-8")


def damaged_parquet(path: Path, error: Exception) -> DataError:
    """The error for a parquet file that cannot be read."""
    return DataError(f"not a readable parquet file ({first_line(error)})", where=str(path), fix="write it again")
