"""From what a user wants classified to a data set: images, folders, texts, tables, lines of standard input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from compress.data.base import Dataset, Kind, Sample, open_dataset, require_kind
from compress.data.folder import IMAGE_SUFFIXES, read_image
from compress.data.reference import TABLE_SUFFIXES, parse_reference
from compress.errors import CompressError, DataError
from compress.home import expanded

STDIN = "-"
SCHEMES = ("builtin:", "hf:")
TEXT_FILE_SUFFIX = ".txt"

Given = str | Path | Image.Image


class BadInputsError(DataError):
    """Some of the inputs cannot be used; nothing was predicted.

    Attributes:
        problems: one per bad input, each a sentence.
    """

    def __init__(self, problems: Sequence[CompressError]) -> None:
        self.problems = tuple(problems)
        first = problems[0]
        super().__init__(first.what, where=first.where, fix=first.fix)


@dataclass(frozen=True)
class _Input:
    """One input: how it is shown, and how its value is read."""

    name: str
    read: Callable[[], Image.Image | str]


_Checked = _Input | CompressError


class InputDataset:
    """Inputs as an unlabelled data set; a sample's id is how the user named it."""

    class_names = None
    labels = None
    reference = "inputs"

    def __init__(self, inputs: Sequence[_Input], kind: Kind) -> None:
        self._inputs = inputs
        self.kind: Kind = kind

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index: int) -> Sample:
        chosen = self._inputs[index]
        return Sample(chosen.read(), None, chosen.name)

    @property
    def fingerprint(self) -> str:
        """Inputs of a user have none."""
        raise NotImplementedError("single inputs are not fingerprinted")


def read_inputs(
    given: Sequence[Given], kind: Kind, *, text_column: str | None = None, stdin: Iterable[str] = ()
) -> Dataset:
    """What a model of ``kind`` shall classify, every input checked.

    For images: an image file, a folder of images, image data as in ``open_dataset``, a PIL image, or ``-``, whose lines
    are image files. For texts: a table or other text data as in ``open_dataset``, a ``.txt`` file of one text a line,
    ``-``, whose lines are texts, or else the text itself.

    All inputs are read once before the first is classified, so either all are answered or none is.

    Args:
        given: as above.
        kind: what the model reads.
        text_column: of tables.
        stdin: the lines of standard input.

    Raises:
        BadInputsError: inputs that cannot be read, every one with its reason.
        DataError: there is no input.
    """
    found: list[_Input] = []
    problems: list[CompressError] = []
    for item in given:
        try:
            for one in _expanded(item, kind, text_column, stdin):
                (found if isinstance(one, _Input) else problems).append(one)  # type: ignore[arg-type]
        except CompressError as problem:
            problems.append(problem)
    if problems:
        raise BadInputsError(problems)
    if not found:
        raise DataError("there is no input", where=", ".join(map(str, given)) or None, fix="name something to classify")
    return InputDataset(found, kind)


def _expanded(item: Given, kind: Kind, text_column: str | None, stdin: Iterable[str]) -> Iterator[_Checked]:
    """The inputs that an item stands for, each read once; what is wrong with one does not hide the others."""
    if isinstance(item, Image.Image):
        if kind != "image":
            raise DataError("is an image, but the model reads text", where="input", fix="give texts")
        yield _Input("image", lambda: item)
    elif str(item) == STDIN:
        for number, line in enumerate(stdin, start=1):
            text = line.rstrip("\r\n")
            yield _image_file(text) if kind == "image" else _text(f"stdin:{number}", text)
    elif _is_data(str(item)):
        yield from _samples(str(item), kind, text_column)
    elif kind == "image":
        yield _image_file(str(item))
    else:
        yield from _texts(str(item))


def _is_data(reference: str) -> bool:
    """Whether ``open_dataset`` reads it: built-in or hub data, a folder or its split, a table, an idx file."""
    if reference.startswith(SCHEMES):
        return True
    path = expanded(reference)
    if reference and _exists(path):  # an empty text would be the working folder
        return path.is_dir() or path.suffix.lower() not in (*IMAGE_SUFFIXES, TEXT_FILE_SUFFIX)
    before, separator, _ = reference.rpartition("#")
    return bool(separator) and _exists(expanded(before)) and expanded(before).is_dir()


def _exists(path: Path) -> bool:
    """A long text is no path, which the system says by an error."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _samples(reference: str, kind: Kind, text_column: str | None) -> Iterator[_Checked]:
    has_columns = parse_reference(reference).kind in ("table", "hf")
    dataset = open_dataset(reference, text_column=text_column if has_columns else None)
    require_kind(dataset, kind)
    is_folder = expanded(reference).is_dir()
    for index in range(len(dataset)):
        try:
            identity = dataset[index].id
        except DataError as broken:
            yield broken
            continue
        name = str(Path(reference) / identity) if is_folder else f"{reference}:{identity}"
        yield _Input(name, lambda index=index: dataset[index].value)  # type: ignore[misc]


def _image_file(text: str) -> _Checked:
    path = expanded(text)
    if not path.is_file():
        return DataError("no such file or folder", where=text, fix="check the path")
    try:
        read_image(path)
    except DataError as broken:
        return broken
    return _Input(text, lambda: read_image(path))


def _texts(item: str) -> Iterator[_Checked]:
    path = expanded(item)
    if _exists(path) and path.suffix.lower() == TEXT_FILE_SUFFIX:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read ({error})", where=item, fix="give a UTF-8 text file") from None
        for number, line in enumerate(lines, start=1):
            yield _text(f"{item}:{number}", line)
        return
    if path.suffix.lower() in (*TABLE_SUFFIXES, TEXT_FILE_SUFFIX) and not any(map(str.isspace, item)):
        raise DataError("no such file", where=item, fix="check the path; a text that ends like this needs a space")
    yield _text(item, item)


def _text(name: str, text: str) -> _Checked:
    try:
        text.encode()
    except UnicodeEncodeError:
        return DataError("is not UTF-8", where=ascii(name), fix="convert it")
    return _Input(name, lambda: text)
