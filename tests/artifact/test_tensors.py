"""Round trips, sharding, ties, determinism and failures of the safetensors writer and reader."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import resource
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from compress.artifact.tensors import TensorEntry, find_ties, read_tensors, tensor_entries, write_tensors
from compress.errors import ArtifactError

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


def save(path: Path, tensors: dict[str, torch.Tensor], **options: Any) -> tuple[Path, ...]:
    entries, ties = tensor_entries(tensors)
    return write_tensors(path, entries, ties=ties, **options)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    return tensor.dtype, tensor.shape, bytes(tensor.flatten().clone().untyped_storage())


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any dtype, shape and bit pattern, often a view that is not contiguous."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    if dtype == torch.bool:
        tensor = torch.randint(0, 2, shape, generator=generator).bool()
    else:
        width = torch.tensor([], dtype=dtype).element_size()
        raw = torch.randint(0, 256, (int(torch.Size(shape).numel()) * width,), dtype=torch.uint8, generator=generator)
        tensor = raw.view(dtype).reshape(shape)
    if tensor.dim() >= 2 and draw(st.booleans()):
        tensor = tensor.transpose(0, -1)
    if tensor.dim() >= 1 and draw(st.booleans()):
        tensor = tensor[draw(st.integers(0, 2)) :: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        tensor = tensor.unsqueeze(0).expand(draw(st.integers(0, 3)), *tensor.shape)
    return tensor


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(max_size=6).filter(lambda name: name.isprintable()), views(), max_size=5))
def test_round_trip_is_bit_exact(tensors: dict[str, torch.Tensor]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.safetensors"
        save(path, tensors)
        read = read_tensors(path)
        assert list(read) == sorted(tensors)
        assert len(read) == len(tensors)
        for name, tensor in tensors.items():
            assert bits(read[name]) == bits(tensor)
            assert (read.dtype(name), read.shape(name)) == (tensor.dtype, tuple(tensor.shape))
        reference = load_file(path)  # another reader agrees that the file is valid
        assert all(bits(reference[name]) == bits(tensors[name]) for name in reference)


def test_same_bytes_in_any_order_and_on_every_run(tmp_path: Path) -> None:
    tensors = {f"layer.{i}": torch.arange(i + 1, dtype=DTYPES[i % 4]) for i in range(8)}
    metadata: dict[str, Any] = {"heads": {"1": [0, 2]}, "ratio": 0.5, "note": None, "a": "é"}
    hashes = set()
    for run in range(4):
        names = list(tensors) if run % 2 else list(reversed(tensors))
        meta = dict(reversed(metadata.items())) if run % 2 else metadata
        path = tmp_path / f"{run}.safetensors"
        save(path, {name: tensors[name] for name in names}, metadata=meta)
        hashes.add(hashlib.sha256(path.read_bytes()).hexdigest())
        assert read_tensors(path).metadata == metadata
    assert len(hashes) == 1


def test_wide_items_come_first_and_every_tensor_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save(path, {"a": torch.ones(3, dtype=torch.uint8), "b": torch.ones(1, dtype=torch.float64), "c": torch.ones(5)})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert list(header) == ["b", "c", "a"]
    assert length % 8 == 0
    assert [header[name]["data_offsets"][0] for name in "bca"] == [0, 8, 28]


def test_metadata_is_one_key_and_absent_when_empty(tmp_path: Path) -> None:
    for metadata, expected in (
        ({"b": 1, "a": [None, {"c": 2}]}, {"compress": '{"a":[null,{"c":2}],"b":1}'}),
        ({}, None),
    ):
        path = tmp_path / "x.safetensors"
        save(path, {"w": torch.zeros(1)}, metadata=metadata)
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        assert header.get("__metadata__") == expected


def test_tied_tensors_are_stored_once_and_tied_again(tmp_path: Path) -> None:
    weight = torch.randn(64, 64)
    tensors = {
        "head.weight": weight,
        "embedding.weight": weight.view(64, 64),
        "part": weight[:32],
        "other": weight.clone(),
    }
    path = tmp_path / "x.safetensors"
    save(path, tensors)
    read = read_tensors(path)
    assert read.ties == {"head.weight": "embedding.weight"}
    assert read["head.weight"] is read["embedding.weight"]
    assert read["head.weight"].data_ptr() != read["other"].data_ptr()
    assert path.stat().st_size < 3 * weight.nbytes
    assert {name: bits(read[name]) for name in read} == {name: bits(tensor) for name, tensor in tensors.items()}


def test_only_the_same_view_is_a_tie() -> None:
    weight = torch.zeros(4, 4)
    meta = torch.zeros(2, device="meta")
    tensors = {"a": weight, "t": weight.T, "row": weight[0], "int": weight.view(torch.int32), "m": meta, "n": meta}
    assert find_ties(tensors) == {}
    assert find_ties({"b": weight, "a": weight, "c": weight, "e": torch.zeros(0), "f": torch.zeros(0)}) == {
        "b": "a",
        "c": "a",
    }


def test_shards_and_index(tmp_path: Path) -> None:
    tensors = {f"w{i}": torch.full((100,), float(i)) for i in range(5)}
    tensors["tied"] = tensors["w3"]
    files = save(tmp_path / "model.safetensors", tensors, shard_bytes=900, metadata={"note": 1})
    assert [file.name for file in files] == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)] + [
        "model.safetensors.index.json"
    ]
    assert names(tmp_path) == sorted(file.name for file in files)
    index = json.loads(files[-1].read_text())
    assert index["metadata"]["total_size"] == 2000
    assert set(index["weight_map"]) == {"w0", "w1", "w2", "w4", "tied"}
    for path in (tmp_path / "model.safetensors", files[-1]):
        read = read_tensors(path)
        assert read.metadata == {"note": 1}
        assert list(read) == sorted(tensors)
        assert all(torch.equal(read[name], tensors[name]) for name in tensors)
        assert read["w3"] is read["tied"]


def test_one_tensor_larger_than_a_shard_has_its_own(tmp_path: Path) -> None:
    files = save(
        tmp_path / "m.safetensors", {"a": torch.ones(1), "big": torch.ones(500), "c": torch.ones(1)}, shard_bytes=8
    )
    assert len(files) == 4
    assert read_tensors(files[-1])["big"].sum() == 500


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[tuple[Path, ...]]:
    yield save(tmp_path / "model.safetensors", {"a": torch.ones(100), "b": torch.ones(100)}, shard_bytes=400)


def test_missing_shard_names_the_file(sharded: tuple[Path, ...]) -> None:
    sharded[1].unlink()
    with pytest.raises(ArtifactError, match=r"model-00002-of-00002\.safetensors: cannot be read"):
        read_tensors(sharded[-1])


@pytest.mark.parametrize(
    "shard", ["../x.safetensors", "/etc/x.safetensors", "x.bin", "a\\b.safetensors", "x\x1b.safetensors"]
)
def test_index_cannot_name_files_elsewhere(sharded: tuple[Path, ...], shard: str) -> None:
    sharded[-1].write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(ArtifactError, match=r"index.json: names the shard"):
        read_tensors(sharded[-1])


@pytest.mark.parametrize("content", ["", "[]", "{", '{"weight_map": {"a": 1}}', "[" * 10000])
def test_damaged_index(sharded: tuple[Path, ...], content: str) -> None:
    sharded[-1].write_text(content)
    with pytest.raises(ArtifactError, match=r"index.json: is cut off or damaged"):
        read_tensors(sharded[-1])


def test_index_that_does_not_fit_its_shards(sharded: tuple[Path, ...]) -> None:
    sharded[-1].write_text(json.dumps({"weight_map": {"a": sharded[1].name, "b": sharded[0].name}}))
    with pytest.raises(ArtifactError, match=r"does not fit model-00001-of-00002.safetensors: tensor 'a'"):
        read_tensors(sharded[-1])


def test_single_file_beside_an_index_is_ambiguous(sharded: tuple[Path, ...], tmp_path: Path) -> None:
    save(tmp_path / "model.safetensors", {"a": torch.ones(1)})
    with pytest.raises(ArtifactError, match="delete the one"):
        read_tensors(tmp_path / "model.safetensors")


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path) -> None:
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def load() -> torch.Tensor:
        nonlocal most
        gc.collect()
        most = max(most, sum(reference() is not None for reference in alive))
        tensor = torch.zeros(10)
        alive.append(weakref.ref(tensor))
        return tensor

    write_tensors(tmp_path / "x.safetensors", [TensorEntry(f"w{i}", torch.float32, (10,), load) for i in range(5)])
    assert len(alive) == 5
    assert most == 0


def test_reading_is_lazy_and_never_writes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save(path, {"a": torch.zeros(1000), "b": torch.ones(1000)})
    before = path.read_bytes()
    read = read_tensors(path)
    read["a"].fill_(7)
    assert path.read_bytes() == before
    assert "c" not in read
    with pytest.raises(KeyError):
        read["c"]


def test_caller_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    entry = TensorEntry("w", torch.float32, (2,), lambda: torch.zeros(3))
    with pytest.raises(ValueError, match="declared"):
        write_tensors(path, [entry])
    with pytest.raises(ValueError, match="twice"):
        write_tensors(path, [entry, entry])
    with pytest.raises(ValueError, match="reserved"):
        write_tensors(path, [], {"ties": {}})
    with pytest.raises(ValueError, match="tie"):
        write_tensors(path, [], ties={"a": "nowhere"})
    with pytest.raises(ArtifactError, match="complex128"):
        save(path, {"w": torch.zeros(1, dtype=torch.complex128)})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "text", ["[]", '"x"', "3", "{", '{"ties": 3}', '{"ties": {"z": [1]}}', '{"ties": {"w": "w"}}', "[" * 9999]
)
def test_damaged_metadata(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.safetensors"
    header = json.dumps(
        {"__metadata__": {"compress": text}, "w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(ArtifactError, match="damaged metadata"):
        read_tensors(path)


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        files = save(tmp_path / "model.safetensors", {"a": torch.ones(9), "b": torch.ones(9)}, shard_bytes=40)
    finally:
        os.umask(previous)
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o644"}


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(ArtifactError, match=r"x\.safetensors: cannot be written .*ulimit"):
            save(tmp_path / "x.safetensors", {"w": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []
