from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.evaluation.metrics.adaptive_calibration_error import adaptive_calibration_error
from compress.evaluation.metrics.classwise_calibration_error import classwise_calibration_error
from compress.evaluation.metrics.expected_calibration_error import expected_calibration_error
from compress.evaluation.metrics.overconfidence import overconfidence
from compress.evaluation.metrics.signed_calibration_error import signed_calibration_error
from compress.evaluation.metrics.underconfidence import underconfidence

BINNED = [expected_calibration_error, overconfidence, underconfidence, signed_calibration_error]


def test_hand_computed(columns_with) -> None:
    """Bins of width 1/15: 0.62 and 0.65 share [9/15, 10/15), 0.95 lies in the last."""
    columns = columns_with([0.62, 0.65, 0.95, 0.95], [True, False, True, True])
    over, under = (0.62 - 1 + 0.65) / 4, 2 * 0.05 / 4
    assert float(overconfidence(columns)) == pytest.approx(over)
    assert float(underconfidence(columns)) == pytest.approx(under)
    assert float(expected_calibration_error(columns)) == pytest.approx(over + under)
    assert float(signed_calibration_error(columns)) == pytest.approx(over - under)


def test_confidence_of_exactly_one_shares_the_last_bin(columns_with) -> None:
    """A right answer at 0.94 and a wrong one at 1.0 partly cancel: |0.94 - 1 + 1.0| / 2, not 0.06/2 + 1/2."""
    columns = columns_with([0.94, 1.0], [True, False])
    assert float(expected_calibration_error(columns)) == pytest.approx(0.47)


def test_confidence_of_exactly_zero_has_a_bin(columns_of) -> None:
    """A class of probability 0 that is the label, and one that is not."""
    columns = columns_of(torch.tensor([[1.0, 0.0], [1.0, 0.0]]).log(), torch.tensor([0, 1]))
    assert float(classwise_calibration_error(columns)) == pytest.approx(0.5)


@pytest.mark.parametrize(("confidence", "expected"), [(0.6, 0.4), (0.8, 0.2), (0.999, 0.001)])
def test_one_sample(columns_with, confidence, expected) -> None:
    assert float(expected_calibration_error(columns_with([confidence], [True]))) == pytest.approx(expected)


def test_adaptive_bins_have_equal_size(columns_with) -> None:
    """32 samples in 15 bins: the first two hold three, the others two."""
    confidence = [0.55 + 0.01 * row for row in range(32)]
    correct = [row % 3 == 0 for row in range(32)]
    gaps = [confidence[row] - correct[row] for row in range(32)]
    edges = [0, 3, 6, *range(8, 33, 2)]
    expected = sum(abs(sum(gaps[a:b])) for a, b in pairwise(edges)) / 32
    assert len(edges) == 16
    assert float(adaptive_calibration_error(columns_with(confidence, correct))) == pytest.approx(expected)


def test_adaptive_error_of_all_tied_confidences_is_the_plain_gap(columns_with) -> None:
    correct = [True] * 13 + [False] * 7
    columns = columns_with([0.9] * 20, correct)
    assert float(adaptive_calibration_error(columns)) == pytest.approx(abs(0.9 - 13 / 20))


def test_classwise_hand_computed(columns_of) -> None:
    probabilities = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.7, 0.2]], dtype=torch.float64)
    columns = columns_of(probabilities.log(), torch.tensor([0, 2]))
    # class 0: |0.9-1| + |0.1|; class 1: |0.05| + |0.7|; class 2: |0.05| + |0.2-1|, each over N = 2, mean over 3 classes
    assert float(classwise_calibration_error(columns)) == pytest.approx((0.2 + 0.75 + 0.85) / 2 / 3, abs=1e-10)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.5, 0.6, 2 / 3, 0.75, 0.8, 0.99, 1.0]), st.booleans()), min_size=1, max_size=40
    ),
    seed=st.integers(0, 99),
)
def test_properties(columns_with, rows, seed) -> None:
    confidence, correct = zip(*rows, strict=True)
    columns = columns_with(list(confidence), list(correct))
    ece, over, under, signed = (float(metric(columns)) for metric in BINNED)
    assert 0 <= ece <= 1
    assert ece == pytest.approx(over + under, abs=1e-12)
    assert signed == pytest.approx(over - under, abs=1e-12)
    assert signed == pytest.approx(sum(confidence) / len(rows) - sum(correct) / len(rows), abs=1e-9)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    shuffled = columns_with([confidence[row] for row in order], [correct[row] for row in order])
    for metric in (expected_calibration_error, adaptive_calibration_error):
        assert float(metric(shuffled)) == pytest.approx(float(metric(columns)), abs=1e-12)


@pytest.mark.parametrize("metric", [*BINNED, adaptive_calibration_error])
def test_integer_weights_equal_repeated_samples(columns_of, metric) -> None:
    generator = torch.Generator().manual_seed(3)
    logits, labels = torch.randn(30, 4, generator=generator), torch.randint(4, (30,), generator=generator)
    logits[10:14] = logits[3]
    counts = torch.randint(4, (5, 30), generator=generator)
    weighted = metric(columns_of(logits, labels), counts.double())
    for row in range(5):
        rows = torch.repeat_interleave(torch.arange(30), counts[row])
        assert float(weighted[row]) == pytest.approx(float(metric(columns_of(logits[rows], labels[rows]))), abs=1e-12)
