"""Risk-coverage curves, detection of foreign inputs, severities."""

from __future__ import annotations

import pytest
import torch

from compress.evaluation.report.detection import draw_roc, draw_scores, measure_detection, score_edges
from compress.evaluation.report.look import Look, drawing
from compress.evaluation.report.risk_coverage import draw_risk_coverage, measure_risk_coverage, risk_at
from compress.evaluation.report.severity import draw_severities
from compress.evaluation.result import ShiftPoint


def test_risk_falls_as_the_least_certain_are_refused(columns_with) -> None:
    curve = measure_risk_coverage("m", columns_with([0.9, 0.8, 0.7, 0.6], [True, True, False, False]))
    assert curve.coverage == pytest.approx((0.25, 0.5, 0.75, 1.0))
    assert curve.risk == pytest.approx((0.0, 0.0, 1 / 3, 0.5))
    assert risk_at(curve, 0.8) == pytest.approx(0.5)
    assert risk_at(curve, 0.5) == 0.0


def test_equal_confidence_is_answered_together(columns_with) -> None:
    curve = measure_risk_coverage("m", columns_with([0.9] * 4, [True, False, True, False]))
    assert (curve.coverage, curve.risk) == ((1.0,), (0.5,))


def test_curves_of_large_sets_are_thinned(columns_with) -> None:
    confidence = (0.5 + torch.arange(5000) / 10001).tolist()
    curve = measure_risk_coverage("m", columns_with(confidence, [row % 3 > 0 for row in range(5000)]))
    assert len(curve.coverage) <= 102
    assert curve.coverage[-1] == 1.0
    assert curve.risk[-1] == pytest.approx(1667 / 5000)


def test_detection_histograms_are_shares_and_the_curve_ends_in_both_corners(columns_of) -> None:
    known, foreign = columns_of(torch.tensor([[9.0, 0], [8.0, 0]])), columns_of(torch.tensor([[0.1, 0]] * 3))
    data = measure_detection("m", "noise", known, foreign, score_edges([known]))
    assert sum(data.known) == pytest.approx(1)
    assert sum(data.foreign) == pytest.approx(1)
    assert data.auroc == 1.0
    assert (data.false_positive_rate[0], data.true_positive_rate[0]) == (0, 0)
    assert (data.false_positive_rate[-1], data.true_positive_rate[-1]) == (1, 1)
    with drawing():
        look = Look(["m"])
        assert "m 1.000" in draw_roc([data], look, 0).description
        assert draw_scores([data], look, 0).name == "scores-1-noise"


def test_bins_follow_the_doubt_of_nearly_certain_models(columns_with) -> None:
    unsure, sure = columns_with([0.6, 0.7, 0.8], [True] * 3), columns_with([1 - 1e-4, 0.9999, 1.0], [True] * 3)
    assert score_edges([unsure])[:2] == pytest.approx((0, 1 / 30))
    edges = score_edges([unsure, sure])
    assert edges[-1] == 1
    assert 1e-6 <= edges[0] <= 1e-4
    data = measure_detection("m", "noise", sure, unsure, edges)
    assert sum(data.known) == pytest.approx(1)  # a doubt of 0 counts in the first bin
    assert data.known[0] == pytest.approx(1 / 3)
    with drawing():
        assert "noise" in draw_scores([data], Look(["m"]), 0).description


def test_the_curve_begins_shortly_before_the_first_error(columns_with) -> None:
    right = measure_risk_coverage(
        "m", columns_with([1 - row / 200 for row in range(100)], [row < 95 for row in range(100)])
    )
    with drawing():
        (axes,) = draw_risk_coverage([right], Look(["m"])).figure.axes
        assert axes.get_xlim()[0] == pytest.approx(0.8)
        always = right.model_copy(update={"risk": (0.5,) * len(right.risk)})
        (axes,) = draw_risk_coverage([right, always], Look(["m"])).figure.axes
        assert axes.get_xlim()[0] == 0


def test_severities_start_at_the_clean_set_and_average_the_corruptions(fused_evaluation) -> None:
    result = fused_evaluation.result
    points = [
        ShiftPoint(model="fused", corruption=corruption, severity=severity, accuracy=accuracy, nll=None, ece=None)
        for corruption, severity, accuracy in (("blur", 1, 0.5), ("noise", 1, 0.3), ("blur", 5, 0.2), ("noise", 5, 0.1))
    ]
    with drawing():
        pictures = list(draw_severities(result.model_copy(update={"shift": tuple(points)}), Look(["single", "fused"])))
    assert [picture.name for picture in pictures] == ["shift-accuracy", "shift-corruptions"]
    clean = result.value("fused", "cls/accuracy")
    assert f"fused from {clean * 100:.1f}\N{NO-BREAK SPACE}% to 15.0\N{NO-BREAK SPACE}%" in pictures[0].description
    assert "single" not in pictures[0].description
    assert "blur: fused 35.0\N{NO-BREAK SPACE}%; noise: fused 20.0\N{NO-BREAK SPACE}%" in pictures[1].description
