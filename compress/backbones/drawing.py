"""The seed from which a family's library draws fresh weights, whichever adapter builds the model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_SEED: ContextVar[int] = ContextVar("seed of fresh weights", default=0)


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Within it, fresh weights come from ``seed``; elsewhere from 0."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


@contextmanager
def fresh_weights() -> Iterator[None]:
    """Where a model is built: the same seed gives the same weights, and torch's random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(_SEED.get())
        yield
