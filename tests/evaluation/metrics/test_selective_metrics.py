from __future__ import annotations

from itertools import pairwise, permutations
from statistics import mean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.evaluation.metrics.aurc import aurc
from compress.evaluation.metrics.risk_at_coverage import risk_at_80, risk_at_90, risk_at_coverage
from compress.evaluation.unavailable import UnavailableMetricError


def reference_aurc(errors: list[int]) -> float:
    """Trapezoids under the risks of the first k samples, errors in order of descending confidence."""
    risks = [sum(errors[:k]) / k for k in range(1, len(errors) + 1)]
    return mean((a + b) / 2 for a, b in pairwise(risks))


def test_aurc_hand_computed(columns_with) -> None:
    columns = columns_with([0.7, 0.9, 0.8], [False, True, False])
    assert float(aurc(columns)) == pytest.approx(((0 + 1 / 2) / 2 + (1 / 2 + 2 / 3) / 2) / 2)


def test_aurc_of_ties_is_the_mean_over_their_orders(columns_with) -> None:
    columns = columns_with([0.9, 0.8, 0.8, 0.8, 0.6], [True, True, False, False, False])
    expected = mean(reference_aurc([0, *order, 1]) for order in permutations([0, 1, 1]))
    assert float(aurc(columns)) == pytest.approx(expected)


def test_risk_of_ties_is_the_mean_over_their_orders(columns_with) -> None:
    columns = columns_with([0.9] + [0.8] * 4, [True, False, False, True, True])
    expected = mean(sum([0, *order][:4]) / 4 for order in permutations([1, 1, 0, 0]))
    assert float(risk_at_80(columns)) == pytest.approx(expected)


def test_coverage_rounds_up_and_is_not_lifted_by_rounding(columns_with) -> None:
    for samples in (5, 10, 15, 35, 70, 1005):
        confidence = [0.5 + 0.4 * (samples - row) / samples for row in range(samples)]
        accepted = samples * 4 // 5
        columns = columns_with(confidence, [row < accepted for row in range(samples)])
        assert float(risk_at_80(columns)) == 0, samples
    columns = columns_with([0.9, 0.8, 0.7], [True, True, False])
    assert float(risk_at_90(columns)) == pytest.approx(1 / 3)


def test_perfect_and_useless_confidence(columns_with) -> None:
    assert float(aurc(columns_with([0.9, 0.8, 0.7], [True] * 3))) == 0
    assert float(aurc(columns_with([0.9] * 10, [True, False] * 5))) == pytest.approx(0.5)


def test_aurc_needs_two_samples(columns_with) -> None:
    with pytest.raises(UnavailableMetricError, match="two inputs"):
        aurc(columns_with([0.9], [True]))


@settings(max_examples=40, deadline=None)
@given(correct=st.lists(st.booleans(), min_size=2, max_size=60))
def test_aurc_equals_the_reference_without_ties(columns_with, correct) -> None:
    confidence = [0.99 - 0.4 * row / len(correct) for row in range(len(correct))]
    assert float(aurc(columns_with(confidence, correct))) == pytest.approx(
        reference_aurc([not c for c in correct]), abs=1e-9
    )


@pytest.mark.parametrize(
    "metric", [aurc, risk_at_80, lambda columns, weights=None: risk_at_coverage(columns, 50, weights)]
)
def test_integer_weights_equal_repeated_samples(columns_of, metric) -> None:
    generator = torch.Generator().manual_seed(5)
    logits, labels = torch.randn(30, 4, generator=generator), torch.randint(4, (30,), generator=generator)
    counts = torch.randint(3, (6, 30), generator=generator)
    weighted = metric(columns_of(logits, labels), counts.double())
    for row in range(6):
        rows = torch.repeat_interleave(torch.arange(30), counts[row])
        repeated = columns_of(logits[rows], labels[rows])
        assert float(weighted[row]) == pytest.approx(float(metric(repeated)), abs=1e-12)
