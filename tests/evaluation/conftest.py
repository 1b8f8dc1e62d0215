"""Columns from logits or probabilities, as the tests write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from compress.evaluation.predictions import ColumnCollector, Columns


def _columns(logits: Tensor, labels: Tensor | None = None, *, batch: int = 64, ids: list[str] | None = None) -> Columns:
    members = logits if logits.ndim == 3 else logits[None]
    names = ids or [f"sample-{row}" for row in range(members.shape[1])]
    collector = ColumnCollector()
    for start in range(0, members.shape[1], batch):
        rows = slice(start, start + batch)
        collector.add(members[:, rows], None if labels is None else labels[rows], names[rows])
    return collector.finish()


@pytest.fixture(scope="session")
def columns_of() -> Callable[..., Columns]:
    """``columns_of(logits (M, N, K) or (N, K), labels=None, batch=64, ids=None)``."""
    return _columns


@pytest.fixture(scope="session")
def columns_with() -> Callable[..., Columns]:
    """``columns_with(confidence, correct)``: two classes; the predicted one is 0 and has the confidence (≥ 0.5)."""

    def build(confidence: list[float], correct: list[bool]) -> Columns:
        top = torch.tensor(confidence, dtype=torch.float64)
        labels = torch.tensor([0 if right else 1 for right in correct])
        return _columns(torch.stack([top, 1 - top], dim=1).log(), labels)

    return build
