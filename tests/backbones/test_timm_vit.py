"""The timm adapter: what a folder or a hub repository says is used, and nothing is guessed or fetched in vain."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import timm
import timm.data
import torch
from PIL import Image
from safetensors.torch import save_file
from tiny.all_cases import CASES
from torch import nn

from compress.artifact.provenance import Provenance
from compress.artifact.store import load_model, save_model
from compress.backbones.registry import preprocessor
from compress.data.sequence import SequenceDataset
from compress.errors import CompressError, DataError, ModelError, UnsupportedModelError
from compress.opening import open_model
from compress.pruning.options import Prune
from compress.pruning.prune import prune

TINY: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 4, "num_classes": 3}
SQUASHED = {
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "interpolation": "bilinear",
    "crop_pct": 0.9,
    "crop_mode": "squash",
}


@pytest.fixture(autouse=True)
def unplugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test that looked up any host, even if a library swallowed the refusal."""
    hosts: list[object] = []

    def refuse(host: object, *_: object, **__: object) -> None:
        hosts.append(host)
        raise OSError("unplugged")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert hosts == []


def tiny_vit(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("vit_tiny_patch16_224", **{**TINY, **changes}).eval()


def write_folder(folder: Path, vit: nn.Module, config: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(vit.state_dict(), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def saved_config(**changes: Any) -> dict[str, Any]:
    """What timm writes beside the weights."""
    arguments = {name: value for name, value in TINY.items() if name != "num_classes"}
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 3, "model_args": arguments}
    return {**config, "pretrained_cfg": SQUASHED, **changes}


def photos() -> list[Image.Image]:
    return [Image.linear_gradient("L").resize(size).convert("RGB") for size in ((40, 23), (17, 31))]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("timm")])
def test_prefix_tokens_are_counted_in_the_model(name: str) -> None:
    case = CASES[name]()
    assert case.model.stem.prefix_tokens == case.library.num_prefix_tokens
    patches = case.model.embed(case.inputs).states.shape[1] - case.model.stem.prefix_tokens
    assert patches == (case.inputs.shape[2] // 4) * (case.inputs.shape[3] // 4)


def test_an_artifact_alone_answers_from_pixels_as_timm_does(tmp_path: Path) -> None:
    vit = tiny_vit()
    transform = timm.data.create_transform((3, 16, 16), **SQUASHED)
    opened = open_model(write_folder(tmp_path / "vit", vit, saved_config(label_names=["a", "b", "c"])))
    save_model(opened, tmp_path / "artifact", Provenance(stage="prune"))
    alone = load_model(tmp_path / "artifact")
    assert alone.labels == ("a", "b", "c")
    with torch.no_grad():
        expected = vit(torch.stack([transform(photo) for photo in photos()]))
        torch.testing.assert_close(alone(preprocessor(alone)(photos())), expected, atol=1e-6, rtol=0)


def test_a_hub_repository_becomes_an_artifact_that_needs_no_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vit, repository = tiny_vit(), tmp_path / "cache" / "models--someone--tiny"
    write_folder(repository / "snapshots" / "0123abc", vit, saved_config())
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    opened = open_model("timm:hf-hub:someone/tiny")
    assert opened.config.backbone.architecture == "vit_tiny_patch16_224"
    save_model(opened, tmp_path / "artifact", Provenance(stage="prune"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(load_model(tmp_path / "artifact")(images), vit(images), atol=1e-6, rtol=0)
    with pytest.raises(ModelError, match=r"^hf-hub:someone/else: not to be had from the hub"):
        open_model("timm:hf-hub:someone/else")


def test_the_oldest_folders_have_their_preprocessing_beside_the_architecture(tmp_path: Path) -> None:
    wide = {"architecture": "vit_tiny_patch16_224", "num_classes": 3, "input_size": [3, 32, 32], **SQUASHED}
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3)
    model = open_model(write_folder(tmp_path / "vit", vit, {**wide, "fixed_input_size": True}))
    assert model.config.preprocessing.size == (32, 32)
    assert model.config.preprocessing.mean == (0.5,) * 3
    with pytest.raises(ModelError, match=r"without its preprocessing \(mean, std, interpolation, crop_fraction\)"):
        open_model(write_folder(tmp_path / "vit", tiny_vit(), saved_config(pretrained_cfg={"num_classes": 3})))


def test_labels_by_number_are_put_in_order(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "vit", tiny_vit(), saved_config(label_names={"2": "c", "0": "a"}))
    assert open_model(folder).labels == ("a", "1", "c")


@pytest.mark.parametrize(
    ("reference", "details", "message"),
    [
        ("timm:beit_base_patch16_224", {}, "Beit is not supported"),
        ("timm:eva02_tiny_patch14_224", {}, "Eva is not supported"),
        ("timm:resnet18", {"weights": "random", "labels": ("a", "b")}, "ResNet is not supported"),
        ("timm:vit_medium_patch16_reg1_gap_256", {"arguments": {"attn_layer": "diff"}}, "DiffAttention"),
    ],
)
def test_what_is_not_supported_is_refused_before_anything_is_fetched(
    reference: str, details: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(UnsupportedModelError, match=message):
        open_model(reference, **details)


@pytest.mark.parametrize(("classes", "untrained"), [(1000, False), (3, True)])
def test_a_published_classifier_of_other_classes_is_known_to_be_untrained(
    classes: int, untrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compress.backbones.timm_vit._fetched", lambda _, arguments: tiny_vit(**arguments))
    model = open_model("timm:vit_tiny_patch16_224", arguments={**TINY, "num_classes": classes})
    assert model.untrained_classifier == untrained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_headz": 3}, "timm refuses the arguments of vit_tiny_patch16_224 .*num_headz"),
        ({"num_heads": 5}, "timm refuses the arguments"),
        ({"img_size": "wide"}, "timm refuses the arguments"),
    ],
)
def test_arguments_that_cannot_work_are_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CompressError, match=message) as caught:
        open_model("timm:vit_tiny_patch16_224", weights="random", labels=("a", "b"), arguments=arguments)
    assert "\n" not in str(caught.value)


def test_thirteen_channels_are_refused_before_images_are_scored(tmp_path: Path) -> None:
    save_file(tiny_vit(in_chans=13).state_dict(), tmp_path / "satellite.safetensors")
    model = open_model(
        "timm:vit_tiny_patch16_224",
        weights=str(tmp_path / "satellite.safetensors"),
        arguments=TINY,
        preprocessing={"mean": [0.5] * 13, "std": [0.5] * 13},
    )
    data = SequenceDataset(photos(), "image", class_names=model.labels, labels=[0, 1])
    for method in ("taylor", "magnitude"):
        with pytest.raises(DataError, match=r"the model reads 13 channels, but images have 1 \(grey\) or 3 \(RGB\)"):
            prune(model, tmp_path / "pruned", data=data, options=Prune(method=method, keep=2))
    assert not (tmp_path / "pruned").exists()


def test_a_grey_model_reads_colour_images_as_grey(tmp_path: Path) -> None:
    grey = CASES["timm one channel"]().model
    assert preprocessor(grey)(photos()).shape == (2, 1, 16, 16)
