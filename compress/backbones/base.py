"""What a model family must tell the rest of the project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from compress.backbones.source import ModelSource
from compress.transformer.config import BackboneConfig, ModelConfig, Preprocessing, Structure
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Head, Inputs, Stem

Preprocessor = Callable[[Sequence[Any]], Inputs]


@dataclass(frozen=True)
class Parts:
    """A library model taken apart: its two ends, its distinct layers, and the order in which they run."""

    stem: Stem
    layers: Sequence[Layer]
    head: Head
    order: tuple[int, ...] | None = None


class Adapter(Protocol):
    """One model family.

    ``skeleton`` must rebuild from ``config.json`` alone, without a network; ``open`` may contact a hub only when the
    user named something remote. What cannot be represented exactly raises ``UnsupportedModelError`` with the class
    name of the offending part and the list of what is supported.
    """

    name: str

    def open(self, source: ModelSource) -> Transformer:
        """The original model with its weights, in evaluation mode."""
        ...

    def skeleton(self, backbone: BackboneConfig, classes: int) -> Parts:
        """The parts of the original model with arbitrary weights (possibly on the meta device)."""
        ...

    def preprocessor(self, model: Transformer) -> Preprocessor:
        """What turns a list of raw samples (PIL images or texts) into the model's inputs."""
        ...


def assemble(
    parts: Parts,
    backbone: BackboneConfig,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    files: dict[str, bytes] | None = None,
) -> Transformer:
    """An original model, unpruned and single, from its parts."""
    heads = tuple(layer.attention.original_heads for layer in parts.layers)
    config = ModelConfig(
        backbone=backbone, structure=Structure.original(heads), labels=tuple(labels), preprocessing=preprocessing
    )
    return Transformer(parts.stem, parts.layers, parts.head, config=config, order=parts.order, files=files).eval()
