"""Monte Carlo dropout: several passes through one model with its dropout active."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from compress.attention.attention import Attention
from compress.transformer.combine import combine_logits
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.usage import Usage


class MonteCarloDropout(nn.Module):
    """Answers with ``passes`` members: the model with other units dropped each time.

    Only dropout is in training mode: the model's ``nn.Dropout`` modules and the dropout of attention weights. Pass
    number t uses the seed ``seed + t``, so the same batch always gets the same answer, and the global random state is
    as before.

    Args:
        models: the one model, or those of an ensemble; they belong to this module from now on.
        passes: how often each runs.
        seed: of the first pass.

    Attributes:
        usages: of the last prediction, those of every model in the first pass, in the second, and so on.
    """

    def __init__(self, models: Sequence[Transformer], *, passes: int, seed: int) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.passes, self.seed = passes, seed
        self.usages: tuple[Usage | None, ...] = ()
        self.eval()
        for module in dropouts(self):
            # Not module.train(), which would reach every module inside an attention.
            module.training = True

    def members(self, inputs: Inputs) -> Tensor:
        """Logits ``(passes · M, B, K)``."""
        kind = next(self.parameters()).device.type
        # Seeding reaches every device of the kind, so the state of every one is kept.
        devices = [] if kind == "cpu" else list(range(torch.accelerator.device_count()))
        found: list[Tensor] = []
        usages: list[Usage | None] = []
        with torch.random.fork_rng(devices, device_type="cuda" if kind == "cpu" else kind):
            for number in range(self.passes):
                torch.manual_seed(self.seed + number)
                for model in cast(Sequence[Transformer], self.models):
                    found.append(model.members(inputs))
                    usages.append(model.usage)
        self.usages = tuple(usages)
        return torch.cat(found)

    def forward(self, inputs: Inputs) -> Tensor:
        """Logits ``(B, K)`` whose softmax is the mean of the passes' probabilities."""
        return combine_logits(self.members(inputs))


def dropouts(model: nn.Module) -> Iterator[nn.Dropout | Attention]:
    """The modules that drop: ``nn.Dropout``, and attentions, which drop attention weights."""
    for module in model.modules():
        if isinstance(module, nn.Dropout | Attention):
            yield module


def rate(module: nn.Dropout | Attention) -> float:
    """The probability with which a module drops."""
    return module.p if isinstance(module, nn.Dropout) else module.dropout


def set_rate(module: nn.Dropout | Attention, probability: float) -> None:
    """Let a module drop with another probability."""
    if isinstance(module, nn.Dropout):
        module.p = probability
    else:
        module.dropout = probability
