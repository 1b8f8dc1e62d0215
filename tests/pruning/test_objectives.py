"""The losses that circuits are searched by."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compress.pruning.objectives import Losses, NonFiniteVariantError, measure_losses
from compress.pruning.outcomes import Outcomes, outcomes_of
from compress.pruning.selection import strongest


def sure(*confidences: list[float]) -> Outcomes:
    """Unlabelled answers of several variants with these confidences."""
    values = torch.tensor(confidences, dtype=torch.float64)
    return Outcomes(values, torch.zeros_like(values, dtype=torch.int64), None)


def test_cross_entropy_and_confidence_by_hand() -> None:
    logits = torch.tensor([[[0.0, 0.0], [0.0, 0.0]], [[200.0, 0.0], [200.0, 0.0]]])
    found = outcomes_of(logits, torch.tensor([0, 1]))
    assert found.cross_entropy is not None
    torch.testing.assert_close(found.cross_entropy.tolist(), [[0.6931471805599453] * 2, [0.0, 200.0]])
    assert found.confidence.tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert found.predicted.tolist() == [[0, 0], [0, 0]]


def test_detection_counts_ties_by_half() -> None:
    losses = measure_losses(
        sure([0.9, 0.8], [0.5, 0.5], [0.1, 0.2], [0.9, 0.5]), sure([0.1, 0.2], [0.5, 0.5], [0.9, 0.8], [0.5, 0.1])
    )
    assert losses.task is None
    assert losses.ood is not None
    # Perfect, all tied, upside down, and one tie among four pairs that are right otherwise.
    assert losses.ood.tolist() == [0.0, 0.5, 1.0, 0.125]


def test_both_losses_count_alike_by_their_ranks() -> None:
    losses = Losses(torch.tensor([100.0, 1.0, 2.0, 3.0]).double(), torch.tensor([0.1, 0.1, 0.4, 0.2]).double())
    assert losses.ranking("avg").tolist() == [(4 + 1.5) / 2, (1 + 1.5) / 2, (2 + 4) / 2, (3 + 3) / 2]
    assert strongest(losses.ranking("avg"), 2) == [2, 3]
    assert strongest(losses.ranking("task"), 1) == [0]


def test_importance_is_above_the_least_and_higher_means_keep() -> None:
    losses = Losses(torch.tensor([2.5, 2.0, 4.0]).double(), None)
    assert losses.importance("task").tolist() == [0.5, 0.0, 2.0]
    with pytest.raises(ValueError, match="avg were not measured"):
        losses.ranking("avg")


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_an_answer_that_is_not_finite_names_its_variant(broken: float) -> None:
    good = sure([0.5, 0.5], [0.5, 0.5])
    bad = Outcomes(good.confidence, good.predicted, torch.tensor([[0.1, 0.1], [0.1, broken]], dtype=torch.float64))
    with pytest.raises(NonFiniteVariantError) as caught:
        measure_losses(bad, good)
    assert caught.value.variant == 1


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_detection_is_the_share_of_pairs_in_the_wrong_order(inside: int, outside: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def draw(count: int) -> Tensor:
        return torch.randint(1, 5, (2, count), generator=generator).double() / 5

    own, foreign = draw(inside), draw(outside)
    losses = measure_losses(sure(*own.tolist()), sure(*foreign.tolist()))
    pairs = own[:, :, None], foreign[:, None, :]
    expected = (pairs[1] > pairs[0]).double().mean((1, 2)) + (pairs[1] == pairs[0]).double().mean((1, 2)) / 2
    assert losses.ood is not None
    torch.testing.assert_close(losses.ood, expected)
