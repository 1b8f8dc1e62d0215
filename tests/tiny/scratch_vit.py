"""A vision transformer of three layers of four heads for the built-in digits, with timm's own random weights."""

from __future__ import annotations

from typing import Any

from compress.backbones.source import ModelSource

ARGUMENTS: dict[str, Any] = {
    "img_size": 8,
    "patch_size": 4,
    "in_chans": 1,
    "embed_dim": 24,
    "depth": 3,
    "num_heads": 4,
}
PREPROCESSING: dict[str, Any] = {"mean": [0.3], "std": [0.4], "resize": "squash", "interpolation": "bilinear"}


def tiny_source(**changes: Any) -> ModelSource:
    """The model and its differences, as ``open_model`` takes it."""
    values = {
        "adapter": "timm",
        "name": "vit_tiny_patch16_224",
        "weights": "random",
        "labels": tuple("0123456789"),
        "arguments": ARGUMENTS,
        "preprocessing": PREPROCESSING,
    }
    return ModelSource(**{**values, **changes})
