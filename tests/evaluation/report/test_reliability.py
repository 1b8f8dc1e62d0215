from __future__ import annotations

import pytest

from compress.evaluation.report.look import Look, drawing
from compress.evaluation.report.reliability import draw_reliability, measure_reliability, wilson_interval
from compress.evaluation.unavailable import UnavailableMetricError


def test_bins_by_hand(columns_with) -> None:
    # Bins of 1/15: 0.95 and 0.97 fall into the last, 0.61 into the tenth.
    data = measure_reliability("m", columns_with([0.95, 0.97, 0.61, 1.0], [True, False, True, True]))
    filled = {number: entry for number, entry in enumerate(data.bins) if entry.samples}
    assert sorted(filled) == [9, 14]
    assert filled[14].samples == 3
    assert filled[14].accuracy == pytest.approx(2 / 3)
    assert filled[14].confidence == pytest.approx((0.95 + 0.97 + 1.0) / 3)
    assert data.bins[0].accuracy is None
    assert data.accuracy == pytest.approx(0.75)
    assert data.calibration_error == pytest.approx(
        3 / 4 * abs(2 / 3 - (0.95 + 0.97 + 1) / 3) + 1 / 4 * (1 - 0.61), abs=1e-9
    )


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 1, 0.2065, 1.0)],
)
def test_wilson_interval_against_tables(hits: int, count: int, low: float, high: float) -> None:
    assert wilson_interval(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_unlabelled_sets_have_no_diagram(columns_of, logits_of) -> None:
    with pytest.raises(UnavailableMetricError, match="no labels"):
        measure_reliability("m", columns_of(logits_of(1, 4, 3, 0)))


def test_every_filled_bin_has_a_tip_and_the_words_name_the_direction(columns_with) -> None:
    data = measure_reliability("sure", columns_with([0.99] * 6 + [0.7], [False] * 6 + [True]))
    with drawing():
        picture = draw_reliability(data, Look(["sure"]), 0)
    assert sorted(picture.tips) == ["bin-10", "bin-14"]
    assert "6 inputs" in picture.tips["bin-14"]
    assert "over-confident" in picture.description
    assert picture.name == "reliability-1-sure"
