"""Heads drawn at random: by the input alone."""

from __future__ import annotations

import torch

from compress.attention.random_choice import drawn_relevance


def test_rounding_errors_of_the_batch_do_not_change_the_heads() -> None:
    generator = torch.Generator().manual_seed(0)
    means = torch.randn(300, 384, generator=generator) + torch.randn(384, generator=generator)
    noise = 1 + 1e-6 * torch.randn(means.shape, generator=generator)
    real = torch.ones(300, 12, dtype=torch.bool)
    first, second = (drawn_relevance(mean, real, training=False) for mean in (means, means * noise))
    assert (first == second).all(-1).sum() >= 298
    assert len(first.unique(dim=0)) == 300, "other inputs have other heads"


def test_padding_is_never_drawn() -> None:
    real = torch.tensor([[True, True, False]])
    for training in (False, True):
        drawn = drawn_relevance(torch.ones(1, 8), real, training)
        assert drawn[0, 2] == 0
        assert (drawn[0, :2] >= 0.5).all()
