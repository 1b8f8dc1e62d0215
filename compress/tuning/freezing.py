"""What is trained, and what stays as it is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from torch import nn

from compress.attention.head_chooser import HeadChooser
from compress.errors import UsageError
from compress.transformer.model import Transformer
from compress.tuning.losses import ExtraLoss
from compress.tuning.options import Freeze


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


def without_loss(model: Transformer, losses: Sequence[ExtraLoss]) -> list[nn.Module]:
    """The choosers of heads, unless one of the losses holds their budgets: without it these would drift."""
    held = tuple(kind for loss in losses for kind in loss.trains)
    return [module for module in model.modules() if isinstance(module, HeadChooser) and not isinstance(module, held)]


@contextlib.contextmanager
def training_mode(
    model: Transformer, frozen: list[nn.Module], only: tuple[type[nn.Module], ...] = ()
) -> Iterator[None]:
    """Within the block the model trains, except its frozen parts, which neither learn nor drop anything.

    Afterwards every parameter asks for a gradient as before, and the model is in evaluation mode.

    Args:
        model: the model.
        frozen: its frozen parts.
        only: see ``set_training``.
    """
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        set_training(model, frozen, only)
        for module in frozen:
            module.requires_grad_(False)
        yield
    finally:
        model.eval()
        for parameter, needed in wanted.items():
            parameter.requires_grad_(needed)


def set_training(model: Transformer, frozen: list[nn.Module], only: tuple[type[nn.Module], ...] = ()) -> None:
    """Training mode for all but the frozen parts.

    Args:
        model: the model.
        frozen: its frozen parts.
        only: kinds of modules that alone are trained. What holds them is in evaluation mode then: an attention drops
            weights by its own mode.
    """
    model.train(not only)
    for module in model.modules():
        if isinstance(module, only):
            module.train()
    for module in frozen:
        module.eval()
