"""Tensors on disk: safetensors files written one tensor at a time and read lazily.

The file of one set of tensors has the same bytes on every run. Above ``shard_bytes`` it becomes numbered shards and an
index, named as Hugging Face names them (``model-00001-of-00002.safetensors``, ``model.safetensors.index.json``). Tied
tensors are stored once; the other names stand in the metadata and are tied again on reading. All metadata is one JSON
text under one key, because several keys would make the reference writer's bytes differ from run to run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from pydantic_core import from_json
from safetensors import SafetensorError, safe_open

from compress.artifact.durable import durable_file, read_failure, write_bytes
from compress.artifact.header import (
    MAX_HEADER_BYTES,
    MAX_HEADER_VALUES,
    METADATA_KEY,
    Declared,
    Header,
    damaged,
    encode_header,
    read_header,
    storage_order,
    strings,
)
from compress.artifact.json_values import check_values
from compress.errors import ArtifactError, first_line

SUFFIX = ".safetensors"
INDEX_SUFFIX = ".index.json"
SHARD_BYTES = 5 * 10**9
METADATA_NAME = "compress"
TIES = "ties"
REMAP_BYTES = 64 * 2**20

_FORMAT_NAMES: Mapping[torch.dtype, str] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
}
_DTYPES = {name: dtype for dtype, name in _FORMAT_NAMES.items()}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor to be written: its declared dtype and shape now, its values when ``load`` is called."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    load: Callable[[], torch.Tensor]


def find_ties(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Names that are the same view of the same memory, as ``{alias: name}``; ``name`` sorts first in its group.

    Views that merely overlap are different tensors. Tensors without memory (meta, empty) are never tied.
    """
    first: dict[tuple[object, ...], str] = {}
    ties: dict[str, str] = {}
    for name, tensor in sorted(tensors.items()):
        if tensor.numel() == 0 or tensor.device.type == "meta":
            continue
        view = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if view in first:
            ties[name] = first[view]
        else:
            first[view] = name
    return ties


def tensor_entries(tensors: Mapping[str, torch.Tensor]) -> tuple[list[TensorEntry], dict[str, str]]:
    """Entries for tensors that are in memory, tied ones once, and the ties."""
    ties = find_ties(tensors)
    entries = [
        TensorEntry(name, tensor.dtype, tuple(tensor.shape), lambda tensor=tensor: tensor)  # type: ignore[misc]
        for name, tensor in tensors.items()
        if name not in ties
    ]
    return entries, ties


def write_tensors(
    path: Path,
    entries: Iterable[TensorEntry],
    metadata: Mapping[str, Any] | None = None,
    *,
    ties: Mapping[str, str] | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> tuple[Path, ...]:
    """Write tensors to ``path``, or to shards and an index beside it when they exceed ``shard_bytes``.

    Tensors are loaded in the order of the file (widest items first, then by name), and one is in memory at a time.

    Args:
        path: a name that ends in ``.safetensors``.
        entries: the tensors; dtype and shape are needed before any is loaded.
        metadata: JSON values; ``ties`` is reserved.
        ties: other names of stored tensors, ``{alias: name}``.
        shard_bytes: the most data in one file; a single larger tensor has a file of its own.

    Returns:
        The files written; the index is the last.

    Raises:
        ArtifactError: a dtype that the format lacks, or a disk that refuses the write; names tensor or file.
        ValueError: a name given twice, or a loaded tensor that is not as declared.
    """
    by_name = _unique(entries)
    declared = {name: Declared(_format_name(entry, path), tuple(entry.shape)) for name, entry in by_name.items()}
    annotation = _annotation(metadata or {}, ties or {}, declared)
    shards = _split(declared, shard_bytes)
    if len(shards) == 1:
        _write_file(path, Header(declared, annotation), by_name)
        return (path,)
    stem, total = path.name.removesuffix(SUFFIX), len(shards)
    files = [path.with_name(f"{stem}-{number:05d}-of-{total:05d}{SUFFIX}") for number in range(1, total + 1)]
    for file, names in zip(files, shards, strict=True):
        _write_file(file, Header({name: declared[name] for name in names}), by_name)
    weight_map = {name: file.name for file, names in zip(files, shards, strict=True) for name in names}
    total_size = sum(tensor.nbytes for tensor in declared.values())
    index = {"metadata": {"total_size": total_size, **annotation}, "weight_map": weight_map}
    index_file = _index_of(path)
    write_bytes(index_file, (json.dumps(index, sort_keys=True, ensure_ascii=False, indent=2) + "\n").encode())
    return (*files, index_file)


class TensorFile(Mapping[str, torch.Tensor]):
    """The tensors of a file or of its shards, read from the memory-mapped file when asked for.

    Iterates in sorted order. A tied name gives the very tensor of the name that it is tied to. Tensors share the
    mapped pages: writing into one changes it for this object, never the file. A file of which much was read is mapped
    anew, so that the pages of tensors that are no longer needed do not stay in memory.
    """

    def __init__(
        self,
        declared: Mapping[str, Declared],
        files: Mapping[str, Path],
        metadata: Mapping[str, Any],
        ties: Mapping[str, str],
    ) -> None:
        self.metadata = metadata
        self.ties = ties
        self._declared, self._files = declared, files
        self._handles: dict[Path, safe_open] = {}
        self._read = 0
        self._shared: dict[str, torch.Tensor] = {}

    def __len__(self) -> int:
        return len(self._declared) + len(self.ties)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((*self._declared, *self.ties)))

    def __contains__(self, name: object) -> bool:
        return name in self._declared or name in self.ties

    def __getitem__(self, name: str) -> torch.Tensor:
        """The tensor on the CPU; raises ``KeyError`` for an unknown name, ``ArtifactError`` for an unreadable file."""
        stored = self.ties.get(name, name)
        if stored in self._shared:
            return self._shared[stored]
        tensor = self._load(stored)
        if stored in self.ties.values():
            self._shared[stored] = tensor
        return tensor

    def all(self) -> dict[str, torch.Tensor]:
        """Every tensor by name, for a model that keeps them: each file is mapped once, however large it is."""
        self.release()
        stored = {name: self._mapped(name) for name in sorted(self._declared)}
        self.release()
        return {name: stored[self.ties.get(name, name)] for name in self}

    def release(self) -> None:
        """Let go of the mapped files; those whose tensors are in use stay until these are gone."""
        self._handles.clear()
        self._read = 0

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape, from the header alone."""
        return self._declared[self.ties.get(name, name)].shape

    def dtype(self, name: str) -> torch.dtype:
        """The dtype, from the header alone."""
        return _DTYPES[self._declared[self.ties.get(name, name)].dtype]

    def _load(self, name: str) -> torch.Tensor:
        tensor = self._mapped(name)
        self._read += tensor.nbytes
        if self._read > REMAP_BYTES:
            self.release()
        return tensor

    def _mapped(self, name: str) -> torch.Tensor:
        path = self._files[name]
        try:
            if path not in self._handles:
                self._handles[path] = _map(path)
            tensor: torch.Tensor = self._handles[path].get_tensor(name)
            return tensor
        except OSError as error:
            raise read_failure(error, path) from error
        except SafetensorError as error:
            raise damaged(path, f"cannot be read as safetensors ({error})") from error


def _map(path: Path) -> safe_open:
    try:
        return safe_open(path, framework="pt")
    except RuntimeError as error:  # torch's, when the system grants no more address space
        raise ArtifactError(
            f"cannot be mapped ({str(error)[:200]})", where=str(path), fix="raise the limit on memory (ulimit -v)"
        ) from error


def read_tensors(path: Path) -> TensorFile:
    """Open the tensors that ``write_tensors`` wrote under ``path``, or any other safetensors file or index.

    Nothing is loaded yet, but every header is checked against its file.

    Raises:
        ArtifactError: the file is missing, cut off or damaged, or both a single file and an index exist.
    """
    index = path if path.name.endswith(INDEX_SUFFIX) else _index_of(path)
    if index == path or not path.exists():
        if index.exists():
            return _open_shards(index)
    elif index.exists():
        raise ArtifactError(f"exists beside {index.name}", where=str(path), fix="delete the one that is not wanted")
    header = read_header(path)
    return _opened(header.tensors, dict.fromkeys(header.tensors, path), header.metadata.get(METADATA_NAME), path)


def _open_shards(index: Path) -> TensorFile:
    try:
        with index.open("rb") as file:
            content = file.read(MAX_HEADER_BYTES + 1)
        check_values(content, MAX_HEADER_VALUES)
        parsed = from_json(content)
        weight_map = strings(parsed["weight_map"], "weight_map")
        annotation = (parsed.get("metadata") or {}).get(METADATA_NAME)  # other writers put other things beside it
        if annotation is not None and not isinstance(annotation, str):
            raise ValueError(f"metadata.{METADATA_NAME} is no text")
    except OSError as error:
        raise read_failure(error, index) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise damaged(index, f"is cut off or damaged ({first_line(error)})") from None
    declared: dict[str, Declared] = {}
    files: dict[str, Path] = {}
    for shard in sorted(set(weight_map.values())):
        if "/" in shard or "\\" in shard or not shard.endswith(SUFFIX) or not shard.isprintable():
            raise damaged(index, f"names the shard {shard!r}, which is no {SUFFIX} file beside it")
        held = read_header(index.with_name(shard)).tensors
        expected = {name for name, file in weight_map.items() if file == shard}
        if expected != set(held):
            name = min(expected ^ set(held))
            raise damaged(index, f"does not fit {shard}: tensor {name!r} is in one and not in the other")
        declared |= held
        files |= dict.fromkeys(held, index.with_name(shard))
    return _opened(declared, files, annotation, index)


def _opened(
    declared: Mapping[str, Declared], files: Mapping[str, Path], annotation: str | None, path: Path
) -> TensorFile:
    """Split our metadata into the caller's and the ties, and check the ties."""
    try:
        metadata = json.loads(annotation or "{}")
        ties = metadata.pop(TIES, {})
        sound = all(alias not in declared and name in declared for alias, name in ties.items())
    except (ValueError, AttributeError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise damaged(path, "has damaged metadata")
    return TensorFile(declared, files, metadata, ties)


def _index_of(path: Path) -> Path:
    return path.with_name(path.name + INDEX_SUFFIX)


def _unique(entries: Iterable[TensorEntry]) -> dict[str, TensorEntry]:
    by_name: dict[str, TensorEntry] = {}
    for entry in entries:
        if entry.name in by_name or entry.name == METADATA_KEY:
            raise ValueError(f"the tensor name {entry.name!r} is given twice or reserved")
        by_name[entry.name] = entry
    return by_name


def _format_name(entry: TensorEntry, path: Path) -> str:
    if entry.dtype not in _FORMAT_NAMES:
        raise ArtifactError(
            f"tensor {entry.name!r} has the dtype {entry.dtype}, which safetensors files cannot hold",
            where=str(path),
            fix="convert it first",
        )
    return _FORMAT_NAMES[entry.dtype]


def _annotation(
    metadata: Mapping[str, Any], ties: Mapping[str, str], declared: Mapping[str, Declared]
) -> dict[str, str]:
    """The one metadata entry, or none when there is nothing to say."""
    if TIES in metadata:
        raise ValueError(f"the metadata key {TIES!r} is reserved")
    for alias, name in ties.items():
        if alias in declared or name not in declared:
            raise ValueError(f"the tie {alias!r} -> {name!r} does not lead from a new name to a stored tensor")
    content = {**metadata, TIES: dict(ties)} if ties else dict(metadata)
    if not content:
        return {}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return {METADATA_NAME: text}


def _split(declared: Mapping[str, Declared], shard_bytes: int) -> list[list[str]]:
    """Tensor names per file, in storage order; always at least one file."""
    shards: list[list[str]] = [[]]
    filled = 0
    for name in storage_order(declared):
        size = declared[name].nbytes
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _write_file(path: Path, header: Header, entries: Mapping[str, TensorEntry]) -> None:
    with durable_file(path) as file:
        file.write(encode_header(header))
        for name in storage_order(header.tensors):
            _write_data(file, entries[name])


def _write_data(file: BinaryIO, entry: TensorEntry) -> None:
    """Append one tensor's values, row-major; a view is made contiguous in a temporary copy."""
    tensor = entry.load().detach()
    if tensor.dtype != entry.dtype or tuple(tensor.shape) != tuple(entry.shape):
        raise ValueError(
            f"tensor {entry.name!r} was declared {entry.dtype} {tuple(entry.shape)}, "
            f"loaded as {tensor.dtype} {tuple(tensor.shape)}"
        )
    plain = tensor.resolve_conj().resolve_neg().to("cpu").contiguous()
    # The stride of an empty or one-element tensor is arbitrary even when it counts as contiguous; the view needs 1.
    flat = plain.as_strided((plain.numel(),), (1,))
    file.write(flat.view(torch.uint8).numpy().data)
