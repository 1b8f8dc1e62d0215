"""The kinds of file that ``export`` writes, by the ending of their names."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from torch.export import ExportedProgram

from compress.errors import UsageError
from compress.exporting.metadata import ExportMetadata
from compress.exporting.options import Export
from compress.exporting.trial import Answer
from compress.registry import Registry


class FileFormat(Protocol):
    """One kind of file.

    Attributes:
        name: for people.
        largest_bytes: the most that its weights may take; None for any amount.
    """

    name: str
    largest_bytes: int | None

    def check_installed(self) -> None:
        """Raise ``UsageError`` when a package is missing without which a file could not be written and checked."""
        ...

    def write(self, program: ExportedProgram, metadata: ExportMetadata, options: Export, file: BinaryIO) -> None:
        """Write a traced model."""
        ...

    def open(self, path: Path) -> Answer:
        """Read a file back, to run it."""
        ...


FORMATS: Registry[FileFormat] = Registry(
    "kind of file", {"onnx": "compress.exporting.onnx_file:FORMAT", "pt2": "compress.exporting.program_file:FORMAT"}
)


def format_of(path: Path) -> FileFormat:
    """The format that the ending of ``path`` names.

    Raises:
        UsageError: an unknown ending, or none.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        endings = " or ".join(f".{name}" for name in FORMATS)
        raise UsageError("the name does not tell the kind of file", where=str(path), fix=f"end it with {endings}")
    return FORMATS[ending]
