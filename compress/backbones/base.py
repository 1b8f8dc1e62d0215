"""What a model family must tell the rest of the project."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pydantic import ValidationError
from torch import Tensor, nn

from compress.backbones.source import ModelSource
from compress.data.preprocessing import ImagePreprocessing, Preprocessing
from compress.errors import ModelError, first_line
from compress.transformer.config import BackboneConfig, ModelConfig, Structure
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Head, Inputs, Stem

Preprocessor = Callable[[Sequence[Any]], Inputs]


@runtime_checkable
class ReadableTokens(Protocol):
    """A preprocessor of texts that can tell what its tokens stand for."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The text of each token, special ones included."""
        ...


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

    def untrained(self, source: ModelSource, image_size: int | None = None) -> Transformer:
        """The model with the library's initial weights, in evaluation mode, for shapes and timings.

        Nothing is read but a configuration; classes and preprocessing that ``source`` does not name are arbitrary.

        Args:
            source: the model; its ``weights`` are ignored.
            image_size: edge of the input, pixels; None for the model's own. An error for a model of texts.
        """
        ...

    def library_model(self, backbone: BackboneConfig, classes: int) -> nn.Module:
        """The library's own, unmodified model with its initial weights, in evaluation mode.

        It is called with the inputs of the project's model and answers with logits, or with the embedding that a
        zero-shot classifier compares with its classes.
        """
        ...


@dataclass(frozen=True)
class SavedPair:
    """A model in its family's own format: a configuration file and a file of weights, by name and content."""

    config: tuple[str, bytes]
    weights: tuple[str, Mapping[str, Tensor]]


class TowerPair(nn.Module):
    """An image tower and a text tower that meet in one space; one subclass per family that has such models."""

    preprocessing: ImagePreprocessing

    def tokenizer(self) -> Callable[[list[str]], Tensor]:
        """From texts to token ids ``(B, N)``."""
        raise NotImplementedError

    def forward(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Unit vectors of images and texts, ``(B, E)`` each, and the factor of their products."""
        raise NotImplementedError

    def classifier(self, labels: Sequence[str], templates: Sequence[str]) -> Transformer:
        """A copy of the image tower as a zero-shot classifier, in evaluation mode."""
        raise NotImplementedError

    def recompute(self, wanted: bool) -> None:
        """Whether a backward pass computes the layers' activations again instead of keeping them."""
        raise NotImplementedError

    def saved(self) -> SavedPair:
        """Both towers in the family's own format."""
        raise NotImplementedError


def assemble(
    parts: Parts,
    backbone: BackboneConfig,
    labels: Sequence[str],
    preprocessing: Preprocessing,
    files: dict[str, bytes] | None = None,
    *,
    untrained_classifier: bool = False,
) -> Transformer:
    """An original model, unpruned and single, from its parts; the other arguments as in ``Transformer``.

    Raises:
        ModelError: the library built it, but it has no classes, or a layer without heads.
    """
    heads = tuple(layer.attention.original_heads for layer in parts.layers)
    try:
        config = ModelConfig(
            backbone=backbone, structure=Structure.original(heads), labels=tuple(labels), preprocessing=preprocessing
        )
    except ValidationError as error:
        raise ModelError(
            f"the configuration describes no classifier ({first_line(error.errors()[0]['msg'])})",
            where=backbone.architecture,
            fix="check its heads and labels",
        ) from error
    model = Transformer(parts.stem, parts.layers, parts.head, config=config, order=parts.order, files=files).eval()
    model.untrained_classifier = untrained_classifier
    return model
