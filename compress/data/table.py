"""A table of texts: .csv, .tsv, .jsonl or .parquet."""

from __future__ import annotations

from pathlib import Path

from compress.data.base import Dataset
from compress.data.columns import choose_label_column, choose_text_column
from compress.data.compact import RowNames, TextColumn
from compress.data.delimited import DelimitedFile
from compress.data.label_cells import encode_labels
from compress.data.reference import ColumnChoice, Reference
from compress.data.rows import JsonLinesFile, ParquetFile, TableFile
from compress.data.sequence import SequenceDataset
from compress.errors import DataError


def open_table(reference: Reference, columns: ColumnChoice) -> Dataset:
    """Read the text column and, if there is one, the label column of a table; other columns are never kept.

    A sample's id is its row: in a text file the line on which it begins, in a parquet file its number from 1. Empty
    texts are kept, missing ones are an error.

    Raises:
        DataError: the table is damaged, a chosen column does not exist or none can be guessed, a text is missing, or
            the labels are no classes (see ``encode_labels``).
    """
    table = _table_file(reference.path)
    where = reference.text
    label_column = choose_label_column(table.columns, columns.label, where)
    text_column = choose_text_column([name for name in table.columns if name != label_column], columns.text, where)
    texts, ids = TextColumn(), RowNames()
    cells: list[object] = []
    known: dict[object, object] = {}  # a label is one object however many rows have it
    for row, cell in table.rows((text_column, *([label_column] if label_column else []))):
        texts.append(_text(cell[0], f"{where}, row {row}", text_column))
        label = cell[1] if label_column else None
        cells.append(known.setdefault(label, label) if isinstance(label, str) else label)
        ids.append(row)
    class_names, labels = encode_labels(cells, ids, where)
    if columns.label is not None and labels is None and texts:
        raise DataError(f"the label column {columns.label!r} is empty", where=where, fix="choose another column")
    return SequenceDataset(texts, "text", class_names=class_names, labels=labels, reference=where, ids=ids)


def _table_file(path: Path) -> TableFile:
    suffix = path.suffix.lower()
    if suffix == ".jsonl":
        return JsonLinesFile(path)
    if suffix == ".parquet":
        return ParquetFile(path)
    return DelimitedFile(path, "\t" if suffix == ".tsv" else ",")


def _text(cell: object, where: str, column: str) -> str:
    if not isinstance(cell, str):
        what = "is missing" if cell is None else f"is a {type(cell).__name__}, not a text"
        raise DataError(
            f"column {column!r} {what}", where=where, fix="correct the row, or choose another --text-column"
        )
    try:
        cell.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"column {column!r} holds half of a surrogate pair, which is no character",
            where=where,
            fix="correct the row",
        ) from None
    return cell
