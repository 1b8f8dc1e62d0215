"""Data sets of the Hugging Face hub, through ``datasets``; the only data that need the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datasets

from compress.data.base import Dataset, Kind
from compress.data.columns import choose_label_column, choose_text_column
from compress.data.label_cells import encode_labels
from compress.data.reference import ColumnChoice, Reference
from compress.data.sequence import SequenceDataset
from compress.errors import DataError, first_line


def open_hub(reference: Reference, columns: ColumnChoice) -> Dataset:
    """Open ``hf:ID#SPLIT`` or ``hf:ID:CONFIG#SPLIT``; see ``from_rows`` for what is read.

    Raises:
        DataError: no split is named, or the hub or its local copy has no such data.
    """
    if reference.split is None:
        raise DataError("a split must be named", where=reference.text, fix="add #train or #test")
    name, _, config = reference.target.partition(":")
    try:
        rows = datasets.load_dataset(name, config or None, split=reference.split)
    except (datasets.exceptions.DatasetsError, OSError, ValueError) as error:
        raise DataError(
            f"the data cannot be loaded ({first_line(error)})",
            where=reference.text,
            fix="check the id, the split and the network",
        ) from None
    return from_rows(rows, reference.text, columns)


def from_rows(rows: datasets.Dataset, reference: str, columns: ColumnChoice) -> Dataset:
    """The samples of an Arrow table with typed columns.

    The values are the column of images if there is one, else the texts. The labels are the chosen column, else the one
    with a usual name, else the only column of the type ``ClassLabel``, whose names are the class names; in such a
    column −1 is a missing label.

    Raises:
        DataError: columns cannot be chosen, or the labels are no classes.
    """
    features = rows.features
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    label_column = choose_label_column(rows.column_names, columns.label, reference)
    classes = [name for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)]
    if label_column is None and len(classes) == 1:
        label_column = classes[0]
    others = [name for name in rows.column_names if name != label_column]
    if columns.text is None and len(images) == 1:
        value_column = images[0]
    else:
        value_column = choose_text_column(others, columns.text, reference)
    ids = [str(row) for row in range(len(rows))]
    cells = list(rows[label_column]) if label_column is not None else [None] * len(rows)
    if label_column in classes:
        feature = features[label_column]
        cells = [None if cell in (None, -1) else feature.int2str(cell) for cell in cells]
    class_names, labels = encode_labels(cells, ids, reference)
    kind: Kind = "image" if value_column in images else "text"
    return SequenceDataset(
        _Column(rows, value_column, kind, reference),
        kind,
        class_names=class_names,
        labels=labels,
        reference=reference,
        ids=ids,
    )


class _Column(Sequence[Any]):
    """One column of a table; a cell is decoded when it is read."""

    def __init__(self, rows: datasets.Dataset, column: str, kind: Kind, reference: str) -> None:
        self._rows, self._column, self._kind, self._reference = rows.select_columns([column]), column, kind, reference

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        value = self._rows[index][self._column]
        if value is None or (self._kind == "text" and not isinstance(value, str)):
            what = "is missing" if value is None else f"is a {type(value).__name__}, not a text"
            raise DataError(
                f"column {self._column!r} {what}",
                where=f"{self._reference}, row {index}",
                fix="choose another column, or leave the row out",
            )
        return value
