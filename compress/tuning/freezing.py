"""What is trained, and what stays as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from torch import nn

from compress.errors import UsageError
from compress.transformer.model import Transformer

Freeze = Literal["trunk", "backbone", "none"]


def frozen_parts(model: Transformer, freeze: Freeze, branch_layer: int) -> list[nn.Module]:
    """The modules that ``freeze`` names.

    Args:
        model: the model.
        freeze: trunk: stem and layers below the branch layer; backbone: stem and all layers; none.
        branch_layer: the first layer that is not of the trunk.

    Raises:
        UsageError: there is no trunk.
    """
    if freeze == "none":
        return []
    if freeze == "trunk" and branch_layer == 0:
        raise UsageError(
            "the model has no trunk: its members part at the first layer",
            where="--freeze",
            fix="freeze backbone or none",
        )
    below = len(model.layers) if freeze == "backbone" else branch_layer
    return [model.stem, *list(model.layers)[:below]]


def all_but(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[nn.Module]:
    """The largest parts of ``module`` that hold no module of ``kinds``: what is frozen when only these are trained."""
    if isinstance(module, kinds):
        return []
    if not any(isinstance(inner, kinds) for inner in module.modules()):
        return [module]
    return [part for child in module.children() for part in all_but(child, kinds)]


@contextlib.contextmanager
def training_mode(model: Transformer, frozen: list[nn.Module]) -> Iterator[None]:
    """Within the block the model trains, except its frozen parts, which neither learn nor drop anything.

    Afterwards every parameter asks for a gradient as before, and the model is in evaluation mode.
    """
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        set_training(model, frozen)
        for module in frozen:
            module.requires_grad_(False)
        yield
    finally:
        model.eval()
        for parameter, needed in wanted.items():
            parameter.requires_grad_(needed)


def set_training(model: Transformer, frozen: list[nn.Module]) -> None:
    """Training mode for all but the frozen parts."""
    model.train()
    for module in frozen:
        module.eval()
