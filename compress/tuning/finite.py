"""Where a loss stopped being a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from compress.transformer.finite import non_finite_weight
from compress.transformer.parts import Hidden


def first_non_finite(model: nn.Module, forward: Callable[[], object]) -> str:
    """The first place that is NaN or infinite, in words: a weight, a module's output, or the losses.

    Args:
        model: the model.
        forward: runs it once more on the batch in question.
    """
    weight = non_finite_weight(model)
    if weight:
        return f"weight {weight}"
    found: list[str] = []
    handles = [module.register_forward_hook(_watch(name, found)) for name, module in model.named_modules() if name]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    return f"output of {found[0]}" if found else "the losses or their gradients"


def first_non_finite_gradient(model: nn.Module) -> str:
    """The first weight whose gradient is NaN or infinite; an empty text when there is none."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return f"gradient of {name}"
    return ""


def _watch(name: str, found: list[str]) -> Callable[[nn.Module, Any, Any], None]:
    def look(module: nn.Module, arguments: Any, output: Any) -> None:
        states = output.states if isinstance(output, Hidden) else output
        if isinstance(states, Tensor) and states.is_floating_point() and not bool(states.isfinite().all()):
            found.append(name)

    return look
