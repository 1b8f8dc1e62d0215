"""Tiny models with budgets that differ from input to input."""

from __future__ import annotations

import copy

import torch

from compress.attention.budget_config import BudgetConfig
from compress.transformer.budgets import budgeted_attentions, with_budgets
from compress.transformer.model import Transformer


def fresh(model: Transformer, config: BudgetConfig | None = None) -> Transformer:
    """A copy with budgets as they are before any training."""
    budgeted = with_budgets(copy.deepcopy(model), config or BudgetConfig(hidden=8))
    generator = torch.Generator().manual_seed(0)
    for _, attention in budgeted_attentions(budgeted):
        attention.chooser.start(generator)
    return budgeted.eval()


def varied(model: Transformer, config: BudgetConfig | None = None, *, seed: int = 0) -> Transformer:
    """A copy whose predictors and scorers are random: some inputs get few heads, others many."""
    budgeted = fresh(model, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, attention in budgeted_attentions(budgeted):
            for parameter in attention.chooser.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
            if attention.chooser.budget.bias is not None:
                attention.chooser.budget.bias.zero_()
    return budgeted
