"""Models whose layers choose how many heads run for an input, and which."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from compress.attention.budget_config import BudgetConfig
from compress.attention.budgeted import BudgetedAttention
from compress.errors import ModelError, UsageError
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
    return model.changed(model.config.model_copy(update={"budget": config}), layers=layers)


@contextlib.contextmanager
def at_budget(models: Iterable[Transformer], share: float | None, cap: float | None = None) -> Iterator[None]:
    """Within the block the models with budgets run as a user asks; afterwards each is as it was.

    Args:
        models: any models; those without budgets are passed over.
        share: every input gets this share of the heads; None leaves it its own.
        cap: the largest share that an input gets.

    Raises:
        UsageError: both are given, one is outside (0, 1], or no model has budgets.
    """
    wanted = share if cap is None else cap
    if wanted is None:
        yield
        return
    if share is not None and cap is not None:
        raise UsageError("a fixed budget has no cap", where="--budget-cap", fix="pass one of --budget and --budget-cap")
    having = [(model, list(budgeted_attentions(model))) for model in models]
    before = [(attention, attention.limit) for _, found in having for _, attention in found]
    if not before:
        where = "--budget" if cap is None else "--budget-cap"
        raise UsageError("no model here has budgets", where=where, fix="make one with compress budget")
    try:
        for model, found in having:
            if found:
                model.budget(wanted, cap=cap is not None)
        yield
    finally:
        for attention, limit in before:
            attention.limit = limit
