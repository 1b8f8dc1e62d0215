"""A hostile or damaged header ends in ArtifactError that names the file, never in a crash."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.artifact.header import MAX_HEADER_BYTES, read_header
from compress.artifact.tensors import read_tensors, tensor_entries, write_tensors
from compress.errors import ArtifactError


def with_header(path: Path, header: Any, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def tensor(dtype: str = "F32", shape: list[Any] | None = None, begin: int = 0, end: int = 4) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "sound.safetensors"
    tensors = {"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.bool), "c": torch.zeros(0, 2)}
    entries, ties = tensor_entries(tensors)
    write_tensors(path, entries, {"n": 1}, ties=ties)
    return path


def load_everything(path: Path) -> None:
    read = read_tensors(path)
    for name in read:
        assert read[name].shape == read.shape(name)


def test_every_truncation_is_found(sound: Path) -> None:
    content = sound.read_bytes()
    for length in range(len(content)):
        sound.write_bytes(content[:length])
        with pytest.raises(ArtifactError, match=r"sound.safetensors: .*; write or download it again"):
            read_tensors(sound)


def test_every_flipped_header_bit_is_an_error_or_harmless(sound: Path) -> None:
    content = bytearray(sound.read_bytes())
    refused = 0
    for position in range(8 * (8 + int.from_bytes(content[:8], "little"))):
        content[position // 8] ^= 1 << position % 8
        sound.write_bytes(content)
        content[position // 8] ^= 1 << position % 8
        try:
            load_everything(sound)
        except ArtifactError as error:
            refused += 1
            assert "sound.safetensors" in str(error)
            assert str(error).isprintable()
    assert refused > 1000


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=64), st.binary(max_size=16))
def test_arbitrary_bytes(text: bytes, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(ArtifactError):
        load_everything(with_header(Path(folder) / "x.safetensors", b"{" + text, data + b"\0"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text(max_size=3) | st.just("__metadata__"),
        st.fixed_dictionaries(
            {"dtype": st.just("U8") | json_values, "shape": json_values, "data_offsets": json_values}
        ),
        max_size=3,
    )
)
def test_arbitrary_json(header: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = with_header(Path(folder) / "x.safetensors", header, b"\0")
        with pytest.raises(ArtifactError):
            load_everything(path)


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": tensor()}, b"\0" * 5, "no tensor owns"),
        ({"a": tensor()}, b"\0" * 3, "is cut off"),
        ({"a": tensor(), "b": tensor()}, b"\0" * 4, "begins at byte 0, not at 4"),
        ({"a": tensor(), "b": tensor(begin=8, end=12)}, b"\0" * 12, "begins at byte 8, not at 4"),
        ({"a": tensor(begin=4, end=0)}, b"\0" * 4, "a range of -4"),
        ({"a": tensor(begin=-4, end=0)}, b"", "greater than or equal"),
        ({"a": tensor(shape=[2])}, b"\0" * 4, "of 8 bytes has a range of 4"),
        ({"a": tensor(shape=[2**62, 2**62])}, b"\0" * 4, "has a range of 4"),
        ({"a": tensor(shape=[2**70])}, b"\0" * 4, "less than"),
        ({"a": tensor(shape=[-1])}, b"\0" * 4, "greater than or equal"),
        ({"a": tensor(shape=[True])}, b"\0" * 4, "valid integer"),
        ({"a": tensor(shape=[1.0])}, b"\0" * 4, "valid integer"),
        ({"a": tensor(shape=[1] * 65)}, b"\0" * 4, "at most 64"),
        ({"a": tensor(dtype="F33")}, b"\0" * 4, "unknown dtype 'F33'"),
        ({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4, "required"),
        ({"__metadata__": {"a": 1}}, b"", "valid string"),
        ([], b"", "no JSON object"),
        (b" {}", b"", "no JSON object"),
        (b"[" * 100_000, b"", "damaged header"),
        (b'{"a":' * 100_000, b"", "damaged header"),
        (b'{"\xff":1}', b"", "damaged header"),
        (b"", b"", "damaged header"),
    ],
)
def test_hostile_headers(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        read_header(with_header(tmp_path / "x.safetensors", header, data))


def test_header_length_is_capped_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        file.truncate(MAX_HEADER_BYTES + 100)  # sparse: takes no room
    with pytest.raises(ArtifactError, match="more than 16777216"):
        read_header(path)
    path.write_bytes(b"\xff" * 8)
    with pytest.raises(ArtifactError, match="cut off"):
        read_header(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"none\.safetensors: cannot be read"):
        read_tensors(tmp_path / "none.safetensors")
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_tensors(tmp_path)


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        read_header(with_header(tmp_path / "x.safetensors", {"a\x1b[31m": {"dtype": 1}}))
    assert str(caught.value).isprintable()
