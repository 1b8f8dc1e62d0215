"""The header of a safetensors file, written in one fixed order and checked by hand before anything maps the file.

Format (https://huggingface.co/docs/safetensors): 8 bytes little-endian header length, a JSON object from tensor names
to ``dtype``, ``shape`` and ``data_offsets`` (plus ``__metadata__``, strings to strings), then the data without holes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from compress.artifact.durable import read_failure
from compress.artifact.json_values import check_values
from compress.errors import ArtifactError, first_line

# A hundred thousand tensors. The reference implementation reads six times as much; parsed, that is gigabytes.
MAX_HEADER_BYTES = 16 * 2**20
MAX_HEADER_VALUES = 2_000_000
METADATA_KEY = "__metadata__"
LENGTH_BYTES = 8
ALIGNMENT = 8

ITEM_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip

_Extent = Annotated[int, Field(ge=0, lt=2**63)]


class _Record(BaseModel):
    """One entry as it stands in the file."""

    dtype: str
    shape: Annotated[list[_Extent], Field(max_length=64)]
    data_offsets: Annotated[list[_Extent], Field(min_length=2, max_length=2)]


_RECORD = TypeAdapter(_Record)


@dataclass(frozen=True)
class Declared:
    """What a header says about one tensor: the format's name of the dtype (``"F32"``) and the shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the data, bytes."""
        return ITEM_BYTES[self.dtype] * math.prod(self.shape)


@dataclass(frozen=True)
class Header:
    """The tensors of a file by name, and its metadata."""

    tensors: Mapping[str, Declared]
    metadata: Mapping[str, str] = field(default_factory=dict)


def storage_order(tensors: Mapping[str, Declared]) -> list[str]:
    """The order of the data in a file: widest items first, then by name, so that every tensor is aligned."""
    return sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))


def encode_header(header: Header) -> bytes:
    """The length and the JSON, padded with spaces to a multiple of 8 bytes; equal headers give equal bytes."""
    entries: dict[str, Any] = {METADATA_KEY: dict(sorted(header.metadata.items()))} if header.metadata else {}
    begin = 0
    for name in storage_order(header.tensors):
        tensor = header.tensors[name]
        end = begin + tensor.nbytes
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def read_header(path: Path) -> Header:
    """Read and check the header: its length against the file, each range against the data, dtype and shape.

    Raises:
        ArtifactError: the file cannot be read, is cut off, or its header is damaged; the message names the file.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            if size < LENGTH_BYTES or length > size - LENGTH_BYTES:
                raise damaged(path, f"is cut off: it has {size} bytes, fewer than its header needs")
            if length > MAX_HEADER_BYTES:
                raise damaged(path, f"declares a header of {length} bytes, more than {MAX_HEADER_BYTES}")
            text = file.read(length)
    except OSError as error:
        raise read_failure(error, path) from error
    return _decode(text, size - LENGTH_BYTES - length, path)


def damaged(path: Path, what: str) -> ArtifactError:
    """The user error for a file whose content cannot be right."""
    return ArtifactError(what, where=str(path), fix="write or download it again")


def strings(mapping: object, name: str) -> dict[str, str]:
    """A JSON object from texts to texts; raises ``ValueError`` at the first value that is none."""
    if not isinstance(mapping, dict):
        raise ValueError(f"{name} is no JSON object")
    for key, value in mapping.items():
        if not isinstance(value, str):
            raise ValueError(f"{name}.{ascii(key[:80])[1:-1]} is no valid string")
    return mapping


def _decode(text: bytes, data_bytes: int, path: Path) -> Header:
    records: dict[str, _Record] = {}
    at = ""
    try:
        check_values(text, MAX_HEADER_VALUES)
        entries = from_json(text, allow_inf_nan=False)
        if not isinstance(entries, dict) or not text.startswith(b"{"):
            raise damaged(path, "has a damaged header: it is no JSON object")
        metadata = strings(entries.pop(METADATA_KEY, {}), METADATA_KEY)
        # One at a time, so that the first wrong one ends it: a list of all errors could be larger than the header.
        for name, entry in entries.items():
            at = name
            records[name] = _RECORD.validate_python(entry, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in (at, *first["loc"]))[:200]
        raise damaged(path, f"has a damaged header ({ascii(place)[1:-1]}: {first['msg']})") from None
    except ValueError as error:
        raise damaged(path, f"has a damaged header ({first_line(error)})") from None
    _check_ranges(records.items(), data_bytes, path)
    return Header({name: Declared(record.dtype, tuple(record.shape)) for name, record in records.items()}, metadata)


def _check_ranges(records: Iterable[tuple[str, _Record]], data_bytes: int, path: Path) -> None:
    """Every range has the size of its tensor, and together they fill the data without holes or overlaps."""
    reached = 0
    for full_name, record in sorted(records, key=lambda item: item[1].data_offsets):
        name = full_name[:80]
        begin, end = record.data_offsets
        if record.dtype not in ITEM_BYTES:
            raise damaged(path, f"holds tensor {name!r} of the unknown dtype {record.dtype!r}")
        needed = Declared(record.dtype, tuple(record.shape)).nbytes
        if end - begin != needed:
            raise damaged(path, f"has a damaged header: tensor {name!r} of {needed} bytes has a range of {end - begin}")
        if begin != reached:
            raise damaged(path, f"has a damaged header: tensor {name!r} begins at byte {begin}, not at {reached}")
        reached = end
    if reached > data_bytes:
        raise damaged(path, f"is cut off: its tensors need {reached} bytes, it has {data_bytes}")
    if reached < data_bytes:
        raise damaged(path, f"has {data_bytes - reached} bytes that no tensor owns")
