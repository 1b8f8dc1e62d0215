from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compress.calibration.threshold import answered, coverage_threshold, risk_threshold
from compress.errors import DataError

scores_and_outcomes = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=40)


def tensors(pairs: list[tuple[int, bool]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([float(score) for score, _ in pairs]), torch.tensor([right for _, right in pairs])


def test_by_hand() -> None:
    scores = torch.tensor([0.4, 0.1, 0.3, 0.2])
    correct = torch.tensor([False, True, False, True])
    assert coverage_threshold(scores, 0.5) == pytest.approx(0.2)
    assert coverage_threshold(scores, 0.51) == pytest.approx(0.3)
    assert coverage_threshold(scores, 1.0) == pytest.approx(0.4)
    assert risk_threshold(scores, correct, 0.0) == pytest.approx(0.2)
    assert risk_threshold(scores, correct, 0.34) == pytest.approx(0.3)
    assert answered(scores, correct, 0.3) == (0.75, pytest.approx(1 / 3))


def test_nine_tenths_of_ten_are_nine() -> None:
    assert coverage_threshold(torch.arange(10.0), 0.9) == 8


@given(scores_and_outcomes, st.floats(0.01, 1))
def test_coverage_is_met_by_the_lowest_threshold(pairs: list[tuple[int, bool]], coverage: float) -> None:
    scores, correct = tensors(pairs)
    threshold = coverage_threshold(scores, coverage)
    assert answered(scores, correct, threshold)[0] >= coverage - 1e-9
    below = scores[scores < threshold]
    assert len(below) / len(scores) < coverage


@given(scores_and_outcomes, st.floats(0, 0.99))
def test_risk_is_met_by_the_highest_threshold(pairs: list[tuple[int, bool]], risk: float) -> None:
    scores, correct = tensors(pairs)
    possible = [float(score) for score in scores if answered(scores, correct, float(score))[1] <= risk]
    if not possible:
        with pytest.raises(DataError, match="no threshold keeps the errors at"):
            risk_threshold(scores, correct, risk)
    else:
        assert risk_threshold(scores, correct, risk) == max(possible)
