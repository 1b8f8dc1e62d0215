"""The table of model families and what is asked of any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from accelerate import init_empty_weights

from compress.backbones.base import Adapter, Preprocessor, TowerPair
from compress.backbones.bounds import Bounds
from compress.backbones.source import ModelSource
from compress.errors import ModelError, first_line
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

# What the families' libraries raise on values that make no sense together.
CANNOT_BUILD = (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError,
                ValueError)  # fmt: skip


def preprocessor(model: Transformer) -> Preprocessor:
    """What turns raw samples into the inputs of ``model``, from the model's own configuration and files."""
    return ADAPTERS[model.config.backbone.adapter].preprocessor(model)


def build_skeleton(
    config: ModelConfig, files: dict[str, bytes] | None = None, *, bounds: Bounds | None = None
) -> Transformer:
    """The model that ``config`` describes, its parameters on the meta device (shapes without memory).

    Args:
        config: the configuration.
        files: further files of the model.
        bounds: what it may need; given where the configuration was read from a file.

    Raises:
        ModelError: the family's library refuses the configuration, or it exceeds the bounds.
    """
    with contextlib.ExitStack() as stack:
        if bounds is not None:
            bounds.check_numbers(config.backbone.arguments)
            stack.enter_context(bounds.watched())
        stack.enter_context(init_empty_weights(include_buffers=False))
        try:
            parts = ADAPTERS[config.backbone.adapter].skeleton(config.backbone, len(config.labels))
            original = Transformer(parts.stem, parts.layers, parts.head, config=config, order=parts.order, files=files)
            return restructured(original, config).eval()
        except CANNOT_BUILD as error:
            raise ModelError(
                f"{config.backbone.adapter} cannot build {config.backbone.architecture[:80]!r} from its configuration "
                f"({first_line(error)})",
                fix="run the stage that wrote it again",
            ) from error
