"""The table of model families and what is asked of any of them."""

from __future__ import annotations

from collections.abc import Callable

from accelerate import init_empty_weights

from compress.backbones.base import Adapter, Preprocessor, TowerPair
from compress.backbones.source import ModelSource
from compress.registry import Registry
from compress.transformer.config import ModelConfig
from compress.transformer.model import Transformer
from compress.transformer.surgery import restructured

ADAPTERS: Registry[Adapter] = Registry(
    "adapter",
    {
        "timm": "compress.backbones.timm_vit:ADAPTER",
        "hf": "compress.backbones.hf_encoder:ADAPTER",
        "open_clip": "compress.backbones.open_clip_tower:ADAPTER",
    },
)

PAIRS: Registry[Callable[[ModelSource], TowerPair]] = Registry(
    "family with two towers", {"open_clip": "compress.backbones.open_clip_pair:open_pair"}
)


def preprocessor(model: Transformer) -> Preprocessor:
    """What turns raw samples into the inputs of ``model``, from the model's own configuration and files."""
    return ADAPTERS[model.config.backbone.adapter].preprocessor(model)


def build_skeleton(config: ModelConfig, files: dict[str, bytes] | None = None) -> Transformer:
    """The model that ``config`` describes, its parameters on the meta device (shapes without memory)."""
    with init_empty_weights(include_buffers=False):
        parts = ADAPTERS[config.backbone.adapter].skeleton(config.backbone, len(config.labels))
        original = Transformer(parts.stem, parts.layers, parts.head, config=config, order=parts.order, files=files)
        return restructured(original, config).eval()
