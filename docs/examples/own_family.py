"""A model family in one file: a small image classifier on torch's own ``nn.TransformerEncoder``."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compress.attention.attention import Attention, Projection
from compress.backbones.base import Parts, Preprocessor, assemble
from compress.backbones.source import ModelSource
from compress.backbones.weights import load_strictly, read_weights
from compress.data.images import image_preprocessor
from compress.data.preprocessing import ImagePreprocessing
from compress.errors import ModelError, UnsupportedModelError
from compress.transformer.config import BackboneConfig
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Head, Hidden, Inputs, Stem


class PatchClassifier(nn.Module):
    """Stands for a class of the family's library, which would be imported here."""

    def __init__(self, classes: int, depth: int = 4, width: int = 48, heads: int = 4, size: int = 8) -> None:
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.positions = nn.Parameter(torch.randn(1, (size // 2) ** 2, width) / 10)
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.classifier(self.norm(self.encoder(x)).mean(dim=1))


class PatchStem(Stem):
    """From images to the first hidden states."""

    def __init__(self, library: PatchClassifier) -> None:
        super().__init__()
        self.patches, self.positions, self.size = library.patches, library.positions, library.size

    def forward(self, inputs: Inputs) -> Hidden:
        return Hidden(self.patches(inputs).flatten(2).transpose(1, 2) + self.positions)

    def example(self, batch: int = 1, length: int | None = None) -> Tensor:
        return self.patches.weight.new_zeros(batch, 1, self.size, self.size)


class PatchHead(Head):
    """From the last hidden states to logits."""

    per_member = ("classifier",)

    def __init__(self, library: PatchClassifier) -> None:
        super().__init__()
        self.norm, self.classifier = library.norm, library.classifier

    def forward(self, hidden: Hidden) -> Tensor:
        return self.classifier(self.norm(hidden.states).mean(dim=1))


def take_apart(library: nn.Module) -> Parts:
    """The library's model as stem, layers and head."""
    if type(library) is not PatchClassifier:  # a subclass may compute something else
        raise UnsupportedModelError(f"{type(library).__name__} is not supported", fix="supported: PatchClassifier")
    return Parts(PatchStem(library), [_layer(block) for block in library.encoder.layers], PatchHead(library))


def _layer(block: nn.TransformerEncoderLayer) -> Layer:
    """A layer of the library with the project's attention in the place of its own, and the same weights."""
    source = block.self_attn
    heads = tuple(range(source.num_heads))
    attention = Attention(
        source.embed_dim, source.head_dim, [heads], original_heads=len(heads), dropout=source.dropout, device="meta"
    )
    query, key, value = map(Projection, source.in_proj_weight.chunk(3), source.in_proj_bias.chunk(3))
    attention.load_projections(query, key, value, Projection(source.out_proj.weight, source.out_proj.bias))
    return Layer(
        attention,
        nn.Sequential(block.linear1, nn.GELU(), block.dropout, block.linear2),
        block.norm1,
        block.norm2,
        residual1=block.dropout1,
        residual2=block.dropout2,
    )


class PatchAdapter:
    """``patches:NAME`` with ``--weights FILE``; ``arguments`` go to the library's class."""

    name = "patches"

    def open(self, source: ModelSource) -> Transformer:
        """The original model with its weights."""
        if source.weights is None:
            raise ModelError("no weights are named", where=source.name, fix="pass --weights FILE")
        state = read_weights(source.weights)
        labels = source.labels or tuple(str(number) for number in range(len(state["classifier.bias"])))
        library = PatchClassifier(len(labels), **source.arguments)
        load_strictly(library, state, source.weights, may_reset=("classifier.",), reset=source.reset_classifier)
        return self._assembled(library, source, labels)

    def skeleton(self, backbone: BackboneConfig, classes: int) -> Parts:
        """The same from config.json alone; the weights come from the artifact."""
        return take_apart(self.library_model(backbone, classes))

    def preprocessor(self, model: Transformer) -> Preprocessor:
        """From PIL images to the model's input."""
        return image_preprocessor(model.config.preprocessing)

    def untrained(self, source: ModelSource, image_size: int | None = None) -> Transformer:
        """For ``compress bench``: any weights and classes."""
        arguments = {**source.arguments, **({} if image_size is None else {"size": image_size})}
        labels = source.labels or ("0", "1")
        sized = source.model_copy(update={"arguments": arguments})
        return self._assembled(PatchClassifier(len(labels), **arguments), sized, labels)

    def library_model(self, backbone: BackboneConfig, classes: int) -> nn.Module:
        """The library's own model, which bench compares with."""
        return PatchClassifier(classes, **backbone.arguments).eval()

    def _assembled(self, library: PatchClassifier, source: ModelSource, labels: tuple[str, ...]) -> Transformer:
        size = (library.size, library.size)
        values = {"mean": (0.305,), "std": (0.376,), "resize": "squash", **(source.preprocessing or {})}
        preprocessing = ImagePreprocessing(size=size, channels=1, **values)
        backbone = BackboneConfig(adapter=self.name, architecture=source.name, arguments=source.arguments)
        return assemble(take_apart(library), backbone, labels, preprocessing)


ADAPTER = PatchAdapter()
