"""The library's own model as a baseline, and models with random weights, of every family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES
from tiny.hf_cases import TINY as TINY_BERT
from tiny.open_clip_cases import tiny_config
from tiny.timm_cases import TINY as TINY_VIT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.backbones.registry import ADAPTERS
from compress.backbones.source import ModelSource
from compress.benching.flops import library_flops
from compress.errors import ModelError
from compress.transformer.model import Transformer


@pytest.fixture
def whole_attention() -> Iterator[None]:
    """torch's own attention module without its fast path, whose products torch does not count."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


@pytest.mark.usefixtures("whole_attention")
@pytest.mark.parametrize("name", CASES)
def test_the_library_s_model_computes_what_is_counted_for_it(name: str) -> None:
    model = CASES[name]().model
    library = ADAPTERS[model.config.backbone.adapter].library_model(model.config.backbone, len(model.labels))
    assert not library.training
    library.requires_grad_(False)  # or the counter fails on views of weights
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        answer = library(model.stem.example(1, None))
    assert answer.shape[0] == 1
    zero_shot = 0 if answer.shape[1] == len(model.labels) else 2 * answer.shape[1] * len(model.labels)
    assert library_flops(model, None) - zero_shot == counter.get_total_flops()


def untrained(adapter: str, name: str, image_size: int | None = None, **arguments: object) -> Transformer:
    return ADAPTERS[adapter].untrained(ModelSource(adapter=adapter, name=name, arguments=arguments), image_size)


def test_a_vision_transformer_of_any_size() -> None:
    small = {key: TINY_VIT[key] for key in ("patch_size", "embed_dim", "depth", "num_heads")}
    model = untrained("timm", "vit_tiny_patch16_224", 12, in_chans=1, **small)
    assert model.config.preprocessing.size == (12, 12)
    assert len(model.labels) == 1000
    assert model(torch.zeros(2, 1, 12, 12)).shape == (2, 1000)


def test_an_encoder_by_its_class_and_by_its_configuration_alone(tmp_path: Path) -> None:
    small = {key: value for key, value in TINY_BERT.items() if key != "num_labels"}
    by_class = untrained("hf", "BertForSequenceClassification", **small)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **small}), encoding="utf-8")
    by_folder = untrained("hf", str(tmp_path))
    assert by_class.config.backbone == by_folder.config.backbone
    inputs = by_class.stem.example(2, 6)
    assert torch.equal(by_class(inputs), by_folder(inputs)), "the same weights on every call"
    library = ADAPTERS["hf"].library_model(by_class.config.backbone, 2)
    torch.testing.assert_close(by_class(inputs), library(inputs), atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="image size; give a length"):
        untrained("hf", "BertForSequenceClassification", 32)


@pytest.mark.parametrize("tower", ["image", "text"])
def test_a_tower_of_a_pair_from_its_configuration_alone(tmp_path: Path, tower: str) -> None:
    config = {"model_cfg": tiny_config(), "preprocess_cfg": {}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    model = untrained("open_clip", str(tmp_path), None, tower=tower)
    assert model(model.stem.example(2)).shape == (2, 2)
    if tower == "text":
        with pytest.raises(ModelError, match="no image size"):
            untrained("open_clip", str(tmp_path), 32, tower=tower)
    else:
        assert untrained("open_clip", str(tmp_path), 20, tower=tower).stem.example().shape == (1, 3, 20, 20)
