"""Weights that other tools wrote, whole and damaged: read as they are meant, or one sentence."""

from __future__ import annotations

import json
import logging
import pickle
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor, nn

from compress.backbones.weights import load_strictly, read_weights
from compress.errors import ModelError


@pytest.fixture
def state() -> dict[str, Tensor]:
    return {"a.weight": torch.arange(6.0).view(2, 3), "b.bias": torch.ones(2)}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".safetensors"])
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module._orig_mod.model."])
def test_a_prefix_on_every_key_is_stripped_and_said(
    prefix: str, suffix: str, state: dict[str, Tensor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prefixed = {prefix + name: value for name, value in state.items()}
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(prefixed, path)
    else:
        torch.save(prefixed, path)
    with caplog.at_level(logging.INFO):
        assert_same(read_weights(path), state)
    for part in prefix.split("."):
        assert not part or f"prefix '{part}.' removed from all 2 keys" in caplog.text


def test_a_prefix_on_some_keys_stays(state: dict[str, Tensor], tmp_path: Path) -> None:
    mixed = {"module.a.weight": state["a.weight"], "b.bias": state["b.bias"]}
    torch.save(mixed, tmp_path / "weights.pt")
    assert_same(read_weights(tmp_path / "weights.pt"), mixed)


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_weights_inside_a_training_checkpoint_are_taken_and_said(
    key: str, prefix: str, state: dict[str, Tensor], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nested = {prefix + name: value for name, value in state.items()}
    torch.save({key: nested, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "checkpoint.pth")
    with caplog.at_level(logging.INFO):
        assert_same(read_weights(tmp_path / "checkpoint.pth"), state)
    assert f"weights taken from {key!r}" in caplog.text


@pytest.mark.parametrize(
    "content",
    [{"epoch": 3}, {"a": 1.0}, [torch.ones(1)], torch.ones(2), {0: torch.ones(2)}, {"a": {"b": torch.ones(1)}}],
)
def test_what_is_no_state_dict_is_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(ModelError, match="does not hold a state dict of tensors; save a state dict"):
        read_weights(tmp_path / "weights.pt")


class Payload:
    """Unpickling this would leave a trace."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return (Path.write_text, (self.place, "unpickled"))  # type: ignore[return-value]


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin"])
@pytest.mark.parametrize("writer", ["zip", "legacy", "pickle"])
def test_nothing_is_unpickled(writer: str, suffix: str, tmp_path: Path) -> None:
    content = {"state_dict": {"a": torch.ones(1)}, "hook": Payload(tmp_path / "trace")}
    path = tmp_path / f"weights{suffix}"
    if writer == "pickle":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=writer == "zip")
    with pytest.raises(ModelError, match="nothing was unpickled; save a state dict"):
        read_weights(path)
    assert not (tmp_path / "trace").exists()


def originals() -> dict[str, bytes]:
    """A small state dict in every format, and what people mistake for one."""
    state = {"a.weight": torch.ones(4, 3), "b": torch.arange(5)}
    found = {"text.pt": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "pickle.pt": pickle.dumps(state)}
    with tempfile.TemporaryDirectory() as folder:
        for name, new in (("zip.pt", True), ("legacy.pt", False)):
            torch.save(state, Path(folder) / name, _use_new_zipfile_serialization=new)
            found[name] = (Path(folder) / name).read_bytes()
        save_file(state, Path(folder) / "tensors.safetensors")
        found["tensors.safetensors"] = (Path(folder) / "tensors.safetensors").read_bytes()
    return found


ORIGINALS = originals()


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(ORIGINALS)), st.integers(0, 3), st.integers(0, 2**30), st.booleans())
def test_damaged_files_are_read_or_refused_in_one_line(name: str, flips: int, seed: int, cut: bool) -> None:
    generator, content = random.Random(seed), bytearray(ORIGINALS[name])
    for _ in range(flips):
        content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content[: generator.randrange(len(content))] if cut else content)
        try:
            read_weights(path)
        except ModelError as error:
            assert str(path) in str(error)
            assert str(error).isprintable()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"weight_map": 3}', '{"weight_map": {"a": null}}', "{}", "\ud800"])
def test_a_damaged_index_is_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(ModelError, match=r"index\.json: not a readable index of weights"):
        read_weights(tmp_path)


def test_shards_are_put_together(state: dict[str, Tensor], tmp_path: Path) -> None:
    save_file({"a.weight": state["a.weight"]}, tmp_path / "one.safetensors")
    save_file({"b.bias": state["b.bias"]}, tmp_path / "two.safetensors")
    index = {"weight_map": {"a.weight": "one.safetensors", "b.bias": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert_same(read_weights(tmp_path), state)
    (tmp_path / "two.safetensors").unlink()
    with pytest.raises(ModelError, match=r"two\.safetensors: no such file or folder"):
        read_weights(tmp_path)


@pytest.mark.parametrize("name", ["../two.safetensors", "{folder}/two.safetensors", "model/../../two.safetensors"])
def test_shards_elsewhere_are_refused(name: str, state: dict[str, Tensor], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for place in (tmp_path, folder):  # one of that name beside the index does not take its place
        save_file({"b.bias": state["b.bias"]}, place / "two.safetensors")
    shard = name.format(folder=tmp_path)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"b.bias": shard}}), encoding="utf-8")
    with pytest.raises(ModelError, match=r"index\.json: names '.*', which is no file beside it"):
        read_weights(folder)


def two_layers(width: int = 3, classes: int = 2) -> nn.Module:
    return nn.ModuleDict({"body": nn.Linear(3, width), "head": nn.Linear(width, classes)})


@pytest.mark.parametrize(
    ("classes", "width", "part"),
    [
        (
            5,
            3,
            r"wrong shape: head\.bias \(5,\) for \(2,\), head\.weight .*--reset-classifier, and --label for each class",
        ),
        (2, 4, r"wrong shape: body\.bias \(4,\) for \(3,\), body\.weight .*; check the architecture"),
    ],
)
def test_shapes_that_do_not_fit_are_listed(classes: int, width: int, part: str) -> None:
    with pytest.raises(ModelError, match=part):
        load_strictly(two_layers(), two_layers(width, classes).state_dict(), "w.pt", may_reset=("head.",))


def test_only_the_classifier_is_reset_and_it_is_listed(caplog: pytest.LogCaptureFixture) -> None:
    module, other = two_layers(), two_layers(classes=5)
    fresh = module["head"].weight.detach().clone()
    load_strictly(module, other.state_dict(), "w.pt", may_reset=("head.",), reset=True)
    assert torch.equal(module["head"].weight, fresh)
    assert torch.equal(module["body"].weight, other["body"].weight)
    assert "w.pt: classifier started anew: head.bias, head.weight" in caplog.text
    with pytest.raises(ModelError, match=r"wrong shape: body\.bias"):
        load_strictly(two_layers(), two_layers(width=4).state_dict(), "w.pt", may_reset=("head.",), reset=True)


def test_missing_and_unexpected_tensors_are_listed() -> None:
    state = two_layers().state_dict()
    state["tail.weight"] = state.pop("body.weight")
    with pytest.raises(ModelError, match=r"missing: body\.weight; unexpected: tail\.weight"):
        load_strictly(two_layers(), state, "w.pt")
