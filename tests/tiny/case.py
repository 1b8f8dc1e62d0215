"""A tiny random model of some family, beside the library's own model with the same weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs


@dataclass
class Case:
    """One row of the contract tests.

    Attributes:
        library: the library's own model, in evaluation mode.
        model: the project's model, opened or taken apart from the same weights (no tensor shared with ``library``).
        inputs: a small batch (for texts: with padding).
        logits: what the library answers, ``logits(library, inputs) -> (B, K)``.
        output_weights: per distinct layer, ``output_weights(library)[layer]`` is the library's output-projection weight
            ``(C, H·D)``: zeroing a head's columns zeroes its context.
        parameters: how many of the library's parameters the project's model is made of.
    """

    library: nn.Module
    model: Transformer
    inputs: Inputs
    logits: Callable[[nn.Module, Inputs], Tensor]
    output_weights: Callable[[nn.Module], list[nn.Parameter]]
    parameters: Callable[[nn.Module], int] = lambda library: sum(tensor.numel() for tensor in library.parameters())

    def reference(self) -> Tensor:
        """The library's logits ``(B, K)``."""
        with torch.no_grad():
            return self.logits(self.library, self.inputs)

    def masked_reference(self, zeroed: Iterable[tuple[int, int]]) -> Tensor:
        """The library's logits with the contexts of the ``(layer, head)`` in ``zeroed`` set to zero."""
        masked = copy.deepcopy(self.library)
        weights = self.output_weights(masked)
        with torch.no_grad():
            for layer, head in zeroed:
                width = self.model.layers[layer].attention.head_width
                weights[layer][:, head * width : (head + 1) * width] = 0
            return self.logits(masked, self.inputs)
