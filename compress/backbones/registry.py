"""The table of model families and what is asked of any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from accelerate import init_empty_weights

from compress.backbones.base import Adapter, Parts, Preprocessor, TowerPair
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
FIX = "run the stage that wrote it again"


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
        ModelError: the family's library refuses the configuration, it exceeds the bounds, or its structure is that of
            another model.
    """
    adapter = ADAPTERS[config.backbone.adapter]
    with contextlib.ExitStack() as stack:
        if bounds is not None:
            hidden = 0 if config.budget is None else config.budget.hidden
            bounds.check_numbers([config.backbone.arguments, config.structure.members, hidden])
            stack.enter_context(bounds.watched())
        stack.enter_context(init_empty_weights(include_buffers=False))
        parts = _library_parts(adapter, config)
        heads = tuple(layer.attention.original_heads for layer in parts.layers)
        if heads != config.structure.original_heads:
            raise ModelError(
                f"the structure lists other layers or heads than {config.backbone.architecture[:80]!r} has", fix=FIX
            )
        original = Transformer(parts.stem, parts.layers, parts.head, config=config, order=parts.order, files=files)
        return restructured(original, config).eval()


def _library_parts(adapter: Adapter, config: ModelConfig) -> Parts:
    """What the family's library makes of a configuration that may hold anything."""
    try:
        return adapter.skeleton(config.backbone, len(config.labels))
    except CANNOT_BUILD as error:
        raise ModelError(
            f"{config.backbone.adapter} cannot build {config.backbone.architecture[:80]!r} from its configuration "
            f"({first_line(error)})",
            fix=FIX,
        ) from error
