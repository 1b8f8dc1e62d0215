"""Separate models that answer together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from compress.transformer.combine import combine_logits
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.usage import Usage


class Ensemble(nn.Module):
    """Runs each model in turn and averages their probabilities: a Deep Ensemble, or pruned members before fusing."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def members(self, inputs: Inputs) -> Tensor:
        """Logits ``(M, B, K)``; a fused model inside counts with all its members."""
        models = cast(Sequence[Transformer], self.models)
        return torch.cat([model.members(inputs) for model in models])

    @property
    def usages(self) -> tuple[Usage | None, ...]:
        """Of every model, as its last pass left it."""
        return tuple(model.usage for model in cast(Sequence[Transformer], self.models))

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits ``(B, K)`` whose softmax is the mean of the members' probabilities."""
        return combine_logits(self.members(inputs))
