"""What a data set is, and how a reference such as ``./reviews.csv`` or ``builtin:digits#test`` becomes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from compress.data.reference import ColumnChoice, Reference, parse_reference
from compress.data.subset import take
from compress.errors import DataError
from compress.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

Kind = Literal["image", "text"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One input of a data set.

    Args:
        value: an image of any size and colour mode, or a text.
        label: position of the class in ``Dataset.class_names``; None when the data set is unlabelled.
        id: name of the sample within its data set, stable when the data move: a relative path, a row number.
    """

    value: Image | str
    label: int | None
    id: str


class Dataset(Protocol):
    """A finite, ordered, indexable set of samples of one kind.

    Attributes:
        reference: how the user named the data, for messages (``./photos#test``).
        kind: ``"image"`` or ``"text"``.
        class_names: names of the classes; None when the data are unlabelled.
        labels: position in ``class_names`` of every sample, known without decoding any; None when unlabelled.
        fingerprint: sha256 (hexadecimal) of contents and labels in their order, independent of where the data lie.
    """

    @property
    def reference(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def class_names(self) -> tuple[str, ...] | None: ...
    @property
    def labels(self) -> Sequence[int] | None: ...
    @property
    def fingerprint(self) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Sample: ...


OPENERS: Registry[Callable[[Reference, ColumnChoice], Dataset]] = Registry(
    "kind of data",
    {
        "builtin": "compress.data.builtin:open_builtin",
        "folder": "compress.data.folder:open_folder",
        "hf": "compress.data.hub:open_hub",
        "idx": "compress.data.idx:open_idx",
        "table": "compress.data.table:open_table",
    },
)


def open_dataset(reference: str, *, text_column: str | None = None, label_column: str | None = None) -> Dataset:
    """Open the data that ``reference`` names.

    ==============================  ==========================================================================
    ``builtin:digits#SPLIT``        scikit-learn's handwritten digits; SPLIT is train, calibration or test
    ``builtin:photos``              unlabelled grey 8x8 patches of scikit-learn's two photographs
    ``FOLDER``, ``FOLDER#SPLIT``    a folder of class folders, or of images; SPLIT is the sub-folder of that name
    ``FILE.csv .tsv .jsonl``        a UTF-8 table of texts
    ``FILE.parquet``                likewise
    ``FILE-images-idx3-ubyte``      images in the MNIST format (or ``.gz``), with the label file beside it
    ``FOLDER#train``, ``#test``     the pair of such files in a folder
    ``hf:ID#SPLIT``                 a data set of the Hugging Face hub (``hf:ID:CONFIG#SPLIT``); needs the network
    ``...[START:STOP:STEP]``        any of these, but only some samples, as Python slices a list
    ==============================  ==========================================================================

    Args:
        reference: see above. A path that exists as it is written is never cut at its ``#`` or ``[``.
        text_column: column of a table that holds the texts; guessed when None.
        label_column: column of a table that holds the classes; guessed when None, and the data are unlabelled
            when no column looks like one.

    Raises:
        DataError: the data do not exist, cannot be read, or are ambiguous.
    """
    try:
        return _open(reference, ColumnChoice(text=text_column, label=label_column))
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror or error})", where=reference, fix="check the path and its permissions"
        ) from None


def given_dataset(data: str | Dataset) -> Dataset:
    """What a caller gave as data: opened when it is a reference."""
    return open_dataset(data) if isinstance(data, str) else data


def _open(reference: str, columns: ColumnChoice) -> Dataset:
    parsed = parse_reference(reference)
    if columns.given and parsed.kind not in ("table", "hf"):
        raise DataError(
            "columns can be chosen in tables and hf: data only", where=reference, fix="drop the column option"
        )
    dataset = OPENERS[parsed.kind](parsed, columns)
    if parsed.rows is None:
        return dataset
    chosen = range(len(dataset))[parsed.rows]
    if not chosen:
        raise DataError(f"chooses none of {len(dataset)} samples", where=reference, fix="choose other rows")
    return take(dataset, chosen, reference=reference)


def require_kind(dataset: Dataset, kind: Kind) -> None:
    """Raise ``DataError`` when a model that reads ``kind`` is given other data."""
    if dataset.kind != kind:
        raise DataError(
            f"holds {dataset.kind} samples, but the model reads {kind} samples",
            where=dataset.reference,
            fix=f"choose {kind} data, or another model",
        )
