"""Moving inputs and models to where they are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from compress.transformer.parts import Inputs


def to_device(inputs: Inputs, device: torch.device, dtype: torch.dtype | None = None) -> Inputs:
    """The same inputs on ``device``; floating-point ones in ``dtype`` when it is given."""
    if isinstance(inputs, Tensor):
        return inputs.to(device, dtype if inputs.is_floating_point() else None)
    return {name: tensor.to(device) for name, tensor in inputs.items()}


@contextlib.contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter asks for a gradient inside the block; afterwards each is as it was."""
    wanted = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    try:
        model.requires_grad_(False)
        yield
    finally:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(wanted[name])


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Every part is in evaluation mode inside the block; afterwards each is as it was."""
    before = {module: module.training for module in model.modules()}
    try:
        model.eval()
        yield
    finally:
        for module, training in before.items():
            module.training = training
