"""The computation that a file holds: prepared inputs in, probabilities and member logits out."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from compress.data.preprocessing import TextPreprocessing
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

IMAGES, MASK = "images", "attention_mask"
OUTPUTS = ("probabilities", "member_logits")
BATCH, LENGTH = "batch", "length"


class InferenceGraph(nn.Module):
    """A model with the outputs of its file; its temperature is part of it.

    Args:
        model: in evaluation mode; what it runs does not depend on the inputs' values.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Inputs) -> dict[str, Tensor]:
        """``probabilities (B, K)``, the mean of the members', and ``member_logits (B, M, K)``.

        The batch comes first in both, so that a server can cut an answer up into those of its requests.
        """
        logits = self.model.members(inputs)
        return {"probabilities": logits.softmax(-1).mean(0), "member_logits": logits.transpose(0, 1)}


def named(inputs: Inputs) -> dict[str, Tensor]:
    """Inputs by the names that they have in a file."""
    return {IMAGES: inputs} if isinstance(inputs, Tensor) else dict(inputs)


def axes(inputs: Inputs) -> dict[str, dict[int, str]]:
    """By input, the dimensions that may have any size, and their names.

    A text's length is one of them where a mask tells padding from text. Without a mask the padding is a part of the
    input, and inputs have the one length that the model's preprocessing gives them.
    """
    free = {0: BATCH, 1: LENGTH} if MASK in named(inputs) else {0: BATCH}
    return {name: dict(free) for name in named(inputs)}


def traced(model: Transformer, example: Inputs) -> ExportedProgram:
    """The graph as ``torch.export`` sees it, for every batch size and, where ``axes`` says so, every length.

    Args:
        model: in evaluation mode, on the CPU.
        example: at least two inputs, of at least two tokens: sizes of 1 would count as fixed.
    """
    spec = model.config.preprocessing
    longest = spec.max_length if isinstance(spec, TextPreprocessing) else None
    sizes = {BATCH: Dim(BATCH, min=1), LENGTH: Dim(LENGTH, min=1, max=longest)}
    free = {name: {axis: sizes[size] for axis, size in own.items()} for name, own in axes(example).items()}
    shapes = free[IMAGES] if isinstance(example, Tensor) else free
    with torch.no_grad():
        return torch.export.export(InferenceGraph(model).eval(), (example,), dynamic_shapes={"inputs": shapes})
