"""Weights that are numbers."""

from __future__ import annotations

from torch import nn

from compress.errors import ModelError


def non_finite_weight(model: nn.Module) -> str:
    """The name of the first parameter that holds a NaN or an infinity; an empty text when there is none."""
    for name, parameter in model.named_parameters():
        if parameter.numel() and not all(bound.isfinite() for bound in parameter.detach().aminmax()):
            return name
    return ""


def check_weights(model: nn.Module, where: str) -> None:
    """Refuse a model that cannot answer anything; ``where`` names its file or folder.

    Raises:
        ModelError: a parameter holds a NaN or an infinity; names it.
    """
    name = non_finite_weight(model)
    if name:
        raise ModelError(
            f"the weight {name} holds NaN or infinity",
            where=where,
            fix="take another copy or an earlier checkpoint of the model",
        )
