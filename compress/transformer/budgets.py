"""Models whose layers choose how many heads run for an input, and which."""

from __future__ import annotations

from collections.abc import Iterator

from compress.attention.budget_config import BudgetConfig
from compress.attention.budgeted import BudgetedAttention
from compress.errors import ModelError
from compress.transformer.model import Transformer


def budgeted_attentions(model: Transformer) -> Iterator[tuple[int, BudgetedAttention]]:
    """The attentions with budgets and the numbers of their layers."""
    for index, layer in enumerate(model.layers):
        if isinstance(layer.attention, BudgetedAttention):
            yield index, layer.attention


def with_budgets(model: Transformer, config: BudgetConfig) -> Transformer:
    """The same model with a budget predictor and a head scorer in every layer; all modules are shared with ``model``.

    Predictors and scorers hold zeros, to be loaded or started. A layer with several streams has them per stream, and
    the heads of a pruned layer are those that it kept.

    Raises:
        ModelError: the model has budgets already.
    """
    if any(True for _ in budgeted_attentions(model)):
        raise ModelError("the model has budgets already", where="budget", fix="use the model that it was made from")
    layers = [layer.with_attention(BudgetedAttention(layer.attention, config)) for layer in model.layers]
    whole = model.config.model_copy(update={"budget": config})
    budgeted = Transformer(model.stem, layers, model.head, config=whole, order=model.order, files=model.files)
    return budgeted.train(model.training)
