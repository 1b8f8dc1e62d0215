"""The learning rate over the steps."""

from __future__ import annotations

import math

from compress.tuning.options import Shape


def rate_factor(step: int, steps: int, *, warmup: float, shape: Shape) -> float:
    """The share of the highest rate with which step ``step`` of ``steps`` is taken; a function of nothing else.

    Rises linearly over the first ``warmup · steps`` steps, then falls to 0 behind the last step:
    ``(1 + cos πt) / 2`` or ``1 − t``, t the share of the remaining steps that is over.
    """
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    if shape == "constant":
        return 1.0
    over = (step - rising) / max(1, steps - rising)
    return (1 + math.cos(math.pi * over)) / 2 if shape == "cosine" else 1 - over
