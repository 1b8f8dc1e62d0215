"""How a user names a model."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from compress.options import Options

RANDOM = "random"
"""In the place of weights: fresh ones."""


class ModelSource(Options):
    """A model by family, name and weights."""

    adapter: str = Field(description="Model family: timm, hf or open_clip.")
    name: str = Field(description="Architecture name, hub id, or a local folder.")
    weights: str | None = Field(
        None, description="Local weights (.safetensors, .pt, .bin, .pth), random, or for open_clip a tag."
    )
    labels: tuple[str, ...] | None = Field(None, description="Class names, in the order of the logits.")
    templates: tuple[str, ...] = Field(
        ("a photo of a {}.",), description="Prompts of zero-shot classes; {} is the class."
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="The family's own arguments, such as img_size.")
    preprocessing: dict[str, Any] | None = Field(None, description="Values that replace the model's own preprocessing.")
    reset_classifier: bool = Field(
        False, description="Start the classifier anew when its weights do not fit --label; nothing else may differ."
    )
