"""Variants that leave work out per input: budgets of heads, and routers of tokens."""

from __future__ import annotations

import torch

from compress.attention.budget_config import BudgetConfig
from compress.transformer.budgets import budgeted_attentions, with_budgets
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig, every_block

EVERY = 2


def budgeted(model: Transformer, share: float) -> Transformer:
    """The model with every input at the budget ``share``, and scorers that choose the heads at random."""
    changed = with_budgets(model, BudgetConfig(fixed=share))
    generator = torch.Generator().manual_seed(0)
    for _, attention in budgeted_attentions(changed):
        attention.chooser.start(generator)
        _draw(attention.chooser.scorer.weight, generator)
    return changed


def routed(model: Transformer, capacity: float) -> Transformer:
    """The model with routers in front of every second block, which choose the tokens at random."""
    blocks = every_block(EVERY, len(model.layers)) or (0,)
    changed = with_routers(model, RoutingConfig(blocks=blocks, capacity=(capacity,)))
    generator = torch.Generator().manual_seed(0)
    for _, layer in routed_layers(changed):
        _draw(layer.router.weight, generator)
    return changed


def _draw(weight: torch.Tensor, generator: torch.Generator) -> None:
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape, generator=generator) / weight.shape[-1] ** 0.5)
