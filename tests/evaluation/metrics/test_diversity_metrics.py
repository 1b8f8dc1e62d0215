from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.evaluation.metrics.disagreement import disagreement
from compress.evaluation.metrics.jaccard import jaccard
from compress.evaluation.metrics.kl import kl
from compress.evaluation.unavailable import UnavailableMetricError


def test_disagreement_hand_computed(columns_of) -> None:
    """Members predict 0 0 1 on the first sample (2 of 3 pairs differ) and 2 2 2 on the second."""
    classes = torch.tensor([[0, 2], [0, 2], [1, 2]])
    columns = columns_of(torch.nn.functional.one_hot(classes, 3).double())
    assert float(disagreement(columns)) == pytest.approx((2 / 3 + 0) / 2)


def test_kl_hand_computed(columns_of) -> None:
    columns = columns_of(torch.tensor([[[0.75, 0.25]], [[0.5, 0.5]]], dtype=torch.float64).log())
    forward = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    backward = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert float(kl(columns)) == pytest.approx((forward + backward) / 2)


@pytest.mark.parametrize("members", [2, 3, 4, 5, 7])
def test_identical_members_do_not_differ(columns_of, members) -> None:
    columns = columns_of(torch.randn(1, 20, 6, generator=torch.Generator().manual_seed(0)).expand(members, -1, -1))
    assert float(disagreement(columns)) == 0
    assert float(kl(columns)) == pytest.approx(0, abs=1e-12)
    assert columns.mutual_information.max() < 1e-12


@pytest.mark.parametrize("metric", [disagreement, kl])
def test_one_member_has_no_diversity(columns_of, metric) -> None:
    with pytest.raises(UnavailableMetricError, match="two members"):
        metric(columns_of(torch.zeros(1, 3, 4)))


def test_jaccard_hand_computed() -> None:
    kept = [[(0, 1), (1, 2)], [(0,), (0,)]]
    assert jaccard(kept) == pytest.approx(2 / 4)  # {00 01 10} and {01 02 10}
    assert jaccard(kept, branch_layer=1) == 1


def test_jaccard_ignores_the_trunk() -> None:
    """Below the branch layer there is one group of heads for all members."""
    assert jaccard([[(0, 1)], [(0, 1), (2, 3), (1, 2)]], branch_layer=1) == pytest.approx((0 + 1 / 3 + 1 / 3) / 3)


@pytest.mark.parametrize(
    ("kept", "branch_layer", "reason"),
    [(None, 0, "not known"), ([[(0,)]], 0, "two members"), ([[(0,)]], 1, "share every layer")],
)
def test_jaccard_unavailable(kept, branch_layer, reason) -> None:
    with pytest.raises(UnavailableMetricError, match=reason):
        jaccard(kept, branch_layer)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=3, max_size=3), min_size=1, max_size=4))
def test_jaccard_range_and_symmetry(kept) -> None:
    value = jaccard(kept)
    assert 0 <= value <= 1
    assert value == pytest.approx(jaccard([list(reversed(groups)) for groups in kept]))
