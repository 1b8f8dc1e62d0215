"""The open_clip adapter against open_clip itself: opening, preprocessing, zero-shot classes, refusals."""

from __future__ import annotations

import json
import logging
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file
from tiny.open_clip_cases import LABELS, TEMPLATES, TEXTS, random_clip, tiny_config
from torch import nn

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.open_clip_preprocessing import image_preprocessing
from compress.backbones.open_clip_source import build_clip, resolve
from compress.backbones.open_clip_tower import ADAPTER, take_apart
from compress.backbones.open_clip_zero_shot import embed_classes
from compress.backbones.recognition import recognise
from compress.backbones.registry import build_skeleton, preprocessor
from compress.backbones.source import ModelSource
from compress.data.images import image_preprocessor
from compress.errors import CompressError, ModelError, UnsupportedModelError
from compress.opening import open_model
from compress.transformer.config import ModelConfig
from compress.transformer.model import Transformer

HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "resize_mode": "squash", "interpolation": "bicubic"}


def save_clip(folder: Path, config: Mapping[str, Any], preprocess: Mapping[str, Any] | None = None) -> nn.Module:
    """Write a random model as open_clip does for the hub, and return it."""
    clip = random_clip(config)
    folder.mkdir(exist_ok=True)
    content = {"model_cfg": config, "preprocess_cfg": HALF if preprocess is None else preprocess}
    (folder / "open_clip_config.json").write_text(json.dumps(content), encoding="utf-8")
    save_file(clip.state_dict(), folder / "open_clip_model.safetensors")
    return clip


def source(name: object, **changes: Any) -> ModelSource:
    values: dict[str, Any] = {"adapter": "open_clip", "name": str(name), "labels": LABELS, "templates": TEMPLATES}
    return ModelSource(**{**values, **changes})


def photos() -> list[Image.Image]:
    """Pictures of several shapes; the content is a gradient, so that a shift or a stretch shows."""
    return [Image.linear_gradient("L").resize(size).convert("RGB") for size in ((40, 23), (17, 31), (16, 16))]


def reopened(model: Transformer) -> Transformer:
    """The model rebuilt from its ``config.json`` and state dict alone."""
    copy = build_skeleton(ModelConfig.model_validate_json(model.config.model_dump_json()), model.files)
    copy.load_state_dict(model.state_dict(), assign=True)
    return copy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model with QuickGELU, mean = std = 0.5 and a squash resize."""
    path = tmp_path_factory.mktemp("models") / "quick"
    save_clip(path, tiny_config(quick_gelu=True))
    return path


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_a_saved_folder_answers_as_open_clip_does_from_pixels_to_logits(folder: Path, no_network: None) -> None:
    library, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    classes = open_clip.build_zero_shot_classifier(
        library.eval(), open_clip.get_tokenizer(f"local-dir:{folder}"), LABELS, TEMPLATES
    )
    model = ADAPTER.open(source(folder))
    with torch.no_grad():
        features = library.encode_image(torch.stack([transform(photo) for photo in photos()]), normalize=True)
        logits = model(preprocessor(model)(photos()))
    assert recognise(folder) == "open_clip"
    assert model.labels == LABELS
    assert (logits - library.logit_scale.exp() * features @ classes).abs().max() < 1e-5


def test_text_tower_classifies_texts_as_open_clip_does(folder: Path) -> None:
    library, _, _ = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")
    classes = open_clip.build_zero_shot_classifier(library.eval(), tokens, LABELS, TEMPLATES)
    model = ADAPTER.open(source(folder, arguments={"tower": "text"}))
    inputs = preprocessor(model)(list(TEXTS))
    with torch.no_grad():
        features = library.encode_text(tokens(list(TEXTS)), normalize=True)
        assert (model(inputs) - library.logit_scale.exp() * features @ classes).abs().max() < 1e-5
    assert inputs["input_ids"].shape == (len(TEXTS), 12)


def test_quick_gelu_is_in_the_artifact(folder: Path) -> None:
    model = ADAPTER.open(source(folder))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert (reopened(model)(images) - model(images)).abs().max() == 0
        plain = ADAPTER.open(source(folder, arguments={"quick_gelu": False}))
        assert (plain(images) - model(images)).abs().max() > 1e-3


@pytest.mark.parametrize("tower", ["image", "text"])
def test_embeddings_of_a_quick_gelu_artifact_reloaded_by_path_are_the_librarys(
    folder: Path, tower: str, tmp_path: Path, no_network: None
) -> None:
    library = open_clip.create_model(f"local-dir:{folder}").eval()
    opened = open_model(f"open_clip:{folder}", labels=LABELS, arguments={"tower": tower})
    save_model(opened, tmp_path / "artifact", Provenance(stage="prune"))
    model = open_model(tmp_path / "artifact")
    inputs = preprocessor(model)(photos() if tower == "image" else list(TEXTS))
    with torch.no_grad():
        found = model.head.features(model.run_layers(model.embed(inputs)))
        expected = (
            library.encode_image(inputs, normalize=True)
            if tower == "image"
            else library.encode_text(inputs["input_ids"], normalize=True)
        )
    assert (found - expected).abs().max() < 1e-5


def test_reopened_model_keeps_its_preprocessing(folder: Path) -> None:
    model = ADAPTER.open(source(folder))
    spec = reopened(model).config.preprocessing
    assert (spec.kind, spec.mean, spec.std, spec.resize) == ("image", (0.5,) * 3, (0.5,) * 3, "squash")
    assert torch.equal(preprocessor(reopened(model))(photos()), preprocessor(model)(photos()))


def test_fixed_position_embedding_stays_fixed(tmp_path: Path) -> None:
    save_clip(tmp_path, tiny_config(vision={"pos_embed_type": "sin_cos_2d"}))
    model = reopened(ADAPTER.open(source(tmp_path)))
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["stem.positional_embedding"]


@pytest.mark.parametrize("resize_mode", ["squash", "shortest", "longest"])
@pytest.mark.parametrize("size", [(16, 16), (8, 16)])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "random"])
def test_images_are_preprocessed_as_by_open_clip(resize_mode: str, size: tuple[int, int], interpolation: str) -> None:
    shipped = {**HALF, "resize_mode": resize_mode, "interpolation": interpolation, "fill_color": 7, "mean": 0.4}
    transform = open_clip.image_transform(size, is_train=False, **shipped)
    spec = image_preprocessing(shipped, size, None, "tiny")
    assert torch.equal(image_preprocessor(spec)(photos()), torch.stack([transform(photo) for photo in photos()]))


def test_class_embeddings_are_normalised_means_of_normalised_prompts() -> None:
    config = tiny_config()
    clip = random_clip(config)
    embeddings = embed_classes(clip, config, LABELS, TEMPLATES)
    tokens = open_clip.SimpleTokenizer(context_length=12)
    with torch.no_grad():
        for label, embedding in zip(LABELS, embeddings, strict=True):
            features = clip.encode_text(tokens([template.format(label) for template in TEMPLATES]), normalize=True)
            assert (embedding - F.normalize(features.mean(0), dim=-1)).abs().max() < 1e-6


def test_what_follows_the_end_of_a_text_does_not_matter(folder: Path) -> None:
    model = ADAPTER.open(source(folder, arguments={"tower": "text"}))
    ids = preprocessor(model)(["a cat", "dogs"])["input_ids"]
    longest = int(ids.argmax(-1).max()) + 1
    assert longest < ids.shape[1]
    with torch.no_grad():
        full, cut = model({"input_ids": ids}), model({"input_ids": ids[:, :longest]})
    assert (full - cut).abs().max() < 1e-5
    mask = model.embed({"input_ids": ids}).mask
    assert mask.sum(-1).tolist() == [4, 3]  # start, words, end


def test_preprocessors_travel_to_worker_processes(folder: Path) -> None:
    for tower, samples in (("image", photos()), ("text", list(TEXTS))):
        model = ADAPTER.open(source(folder, arguments={"tower": tower}))
        preprocess = preprocessor(model)
        here, there = preprocess(samples), pickle.loads(pickle.dumps(preprocess))(samples)  # noqa: S301
        if tower == "text":
            here, there = here["input_ids"], there["input_ids"]
        assert torch.equal(here, there)


@pytest.mark.parametrize("wrap", ["scalar scale", "flat text", "module prefix", "openai extras", "half"])
def test_weights_as_other_tools_wrote_them(tmp_path: Path, wrap: str) -> None:
    custom = wrap == "flat text"
    config = tiny_config(custom_text=custom, nonscalar_logit_scale=wrap == "scalar scale")
    clip = save_clip(tmp_path, config)
    expected = ADAPTER.open(source(tmp_path))
    state = clip.state_dict()
    if wrap == "scalar scale":
        state["logit_scale"] = state["logit_scale"].reshape(())
    elif wrap == "flat text":
        state = {key.removeprefix("text."): value for key, value in state.items()}
    elif wrap == "module prefix":
        state = {f"module.{key}": value for key, value in state.items()}
    elif wrap == "openai extras":
        state |= {
            "input_resolution": torch.tensor(16),
            "context_length": torch.tensor(12),
            "vocab_size": torch.tensor(9),
        }
    else:
        state = {key: value.half() for key, value in state.items()}
    torch.save(state, tmp_path / "weights.pt")
    model = ADAPTER.open(source(tmp_path, weights=str(tmp_path / "weights.pt")))
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert (model(images) - expected(images)).abs().max() < (2e-2 if wrap == "half" else 1e-6)


def test_image_size_resizes_the_position_embedding_only_on_request(folder: Path, tmp_path: Path) -> None:
    model = ADAPTER.open(source(folder, arguments={"image_size": 32}))
    with torch.no_grad():
        assert model(preprocessor(model)(photos())).isfinite().all()
    library = open_clip.create_model(f"local-dir:{folder}", force_image_size=32)
    assert torch.equal(model.stem.positional_embedding, library.visual.positional_embedding)
    config = json.loads((folder / "open_clip_config.json").read_text(encoding="utf-8"))
    config["model_cfg"]["vision_cfg"]["image_size"] = 32
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match=r"visual\.positional_embedding \(17, 48\) for \(65, 48\)"):
        ADAPTER.open(source(tmp_path, weights=str(folder / "open_clip_model.safetensors")))


def test_random_weights_are_asked_for_seeded_and_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with caplog.at_level(logging.WARNING):
        first = ADAPTER.open(source(folder, weights="random"))
    assert "random weights" in caplog.text
    assert torch.equal(torch.get_rng_state(), before)
    second = ADAPTER.open(source(folder, weights="random"))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


def test_a_tag_brings_its_activation_and_preprocessing_and_is_fetched_last(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Mapping[str, Any]] = []

    def fetch(tag: Mapping[str, Any]) -> str:
        fetched.append(tag)
        raise FileNotFoundError("offline\nand more")

    monkeypatch.setattr(open_clip, "download_pretrained", fetch)
    found = resolve(source("ViT-B-32", weights="openai"))
    assert found.model_cfg["quick_gelu"] is True
    assert not resolve(source("ViT-B-32", weights="laion2b_s34b_b79k")).model_cfg["quick_gelu"]
    assert not resolve(source("ViT-B-32", weights="openai", arguments={"quick_gelu": False})).model_cfg["quick_gelu"]
    assert resolve(source("ViT-L-14", weights="laion2b_s32b_b82k")).preprocess_cfg["mean"] == (0.5, 0.5, 0.5)
    assert not fetched
    with pytest.raises(ModelError, match=r"^ViT-B-32 openai: cannot be fetched \(offline\); pass --weights FILE$"):
        found.weights()
    with pytest.raises(UnsupportedModelError, match="ModifiedResNet"):
        ADAPTER.open(source("RN50", weights="openai"))
    assert len(fetched) == 1


def test_preprocessing_that_published_weights_disagree_on_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(1)}, weights)
    assert "mean" not in resolve(source("ViT-L-14", weights=str(weights))).preprocess_cfg
    assert "GELU is taken as the activation" in caplog.text
    assert resolve(source("ViT-B-32", weights=str(weights))).preprocess_cfg["mean"] == open_clip.OPENAI_DATASET_MEAN


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "zero-shot classification needs class names; pass --label or model.labels"),
        ({"labels": ("cat", "dog", "cat")}, "labels: class 'cat' is named 2 times"),
        ({"templates": ()}, "no prompt template"),
        ({"templates": ("a photo",)}, "'a photo' is no prompt template"),
        ({"templates": ("{name}",)}, "'{name}' is no prompt template"),
        ({"name": "./nowhere"}, "./nowhere: no such folder"),
        ({"name": "ViT-B-33", "weights": "openai"}, "no model 'ViT-B-33'; did you mean"),
        ({"name": "ViT-B-32", "weights": None}, "ViT-B-32: no weights are named"),
        ({"name": "ViT-B-32", "weights": "opennai"}, "ViT-B-32 has no weights 'opennai'; did you mean 'openai'?"),
        ({"name": "ViT-B-32", "weights": "./none.safetensors"}, "./none.safetensors: no such file or folder"),
        ({"weights": "./none.pt"}, "./none.pt: no such file or folder"),
        ({"arguments": {"towr": "text"}}, "unknown argument 'towr'; did you mean 'tower'?"),
        ({"arguments": {"tower": "texts"}}, "unknown tower 'texts'; did you mean 'text'?"),
        ({"arguments": {"image_size": 3}}, "image_size 3 is neither a number of pixels nor two"),
        ({"arguments": {"image_size": "16"}}, "image_size '16' is neither"),
        ({"preprocessing": {"resize": "stretch"}}, "preprocessing.resize: "),
        ({"arguments": {"tower": "text"}, "preprocessing": {"max_length": 99}}, "longer than the context of 12 tokens"),
    ],
)
def test_user_errors_are_one_line(folder: Path, no_network: None, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CompressError) as caught:
        ADAPTER.open(source(changes.pop("name", folder), **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_folders_are_named(tmp_path: Path) -> None:
    assert recognise(tmp_path) is None
    with pytest.raises(ModelError, match=r"open_clip_config\.json: no such file"):
        ADAPTER.open(source(tmp_path))
    config = {"model_cfg": tiny_config(vision={"widht": 8}), "preprocess_cfg": HALF}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match=r"open_clip refuses the model's configuration .*'widht'"):
        ADAPTER.open(source(tmp_path))
    (tmp_path / "open_clip_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="not valid JSON"):
        ADAPTER.open(source(tmp_path))
    config = {"model_cfg": tiny_config(), "preprocess_cfg": {"resize_mode": "squash"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ModelError, match=r"preprocessing is not stored with the weights \(mean, std, interpolation"):
        ADAPTER.open(source(tmp_path))
    given = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    with pytest.raises(ModelError, match="the folder holds no weights"):
        ADAPTER.open(source(tmp_path, preprocessing=given))


@pytest.mark.parametrize(
    ("tower", "config", "message"),
    [
        ("image", tiny_config(multimodal_cfg={}), "CoCa"),
        ("image", tiny_config(text={"hf_model_name": "roberta-base"}), "HFTextEncoder"),
        ("image", tiny_config(text={"hf_tokenizer_name": "bert-base-uncased"}), "HFTokenizer"),
        ("image", tiny_config(vision={"timm_model_name": "vit_tiny_patch16_224"}), "TimmModel"),
        ("image", tiny_config(vision={"layers": [1, 1, 1, 1]}), "ModifiedResNet"),
        ("image", tiny_config(vision={"attentional_pool": "parallel"}), "two attention pools"),
        ("image", tiny_config(vision={"pool_type": "none"}), "two attention pools or none"),
        ("image", tiny_config(vision={"scaled_cosine_attn": True}), "scaled_cosine_attn"),
        ("text", tiny_config(text={"scale_attn_inner": True}), "scale_attn_inner"),
        ("text", tiny_config(text={"embed_cls": True}, custom_text=True), "embed_cls"),
        ("text", tiny_config(text={"pool_type": "none"}), "without pooling"),
    ],
)
def test_what_cannot_be_exact_is_refused_by_name(
    tmp_path: Path, no_network: None, tower: str, config: dict[str, Any], message: str
) -> None:
    content = {"model_cfg": config, "preprocess_cfg": HALF}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match=f"{message}.*; supported: CLIP and CustomTextCLIP"):
        ADAPTER.open(source(tmp_path, weights="random", arguments={"tower": tower}))


def test_other_classes_are_refused_by_name() -> None:
    class Doubled(nn.MultiheadAttention):
        pass

    clip = build_clip(tiny_config())
    clip.visual.transformer.resblocks[1].attn = Doubled(48, 4)
    with pytest.raises(UnsupportedModelError, match=r"^visual\.1: Doubled is not supported"):
        take_apart(clip, "image", torch.zeros(2, 32))
    clip.transformer.resblocks[2] = nn.Identity()
    with pytest.raises(UnsupportedModelError, match=r"^text\.2: Identity is not supported"):
        take_apart(clip, "text", torch.zeros(2, 32))
    with pytest.raises(UnsupportedModelError, match="Linear is not supported"):
        take_apart(nn.Linear(1, 1), "image", torch.zeros(2, 32))


def test_a_text_tower_next_to_an_unsupported_image_tower_works(tmp_path: Path) -> None:
    vision = {"timm_model_name": "vit_tiny_patch16_224", "timm_model_pretrained": True, "timm_pool": "token"}
    save_clip(tmp_path, tiny_config(vision={**vision, "image_size": 224}, custom_text=True))
    model = ADAPTER.open(source(tmp_path, arguments={"tower": "text"}))
    inputs = preprocessor(model)(list(TEXTS))
    with torch.no_grad():
        assert torch.equal(reopened(model)(inputs), model(inputs))
