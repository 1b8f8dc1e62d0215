from __future__ import annotations

import pytest

from compress.evaluation.report.look import Look, drawing
from compress.evaluation.report.tradeoff import draw_tradeoff, measure_tradeoffs
from compress.evaluation.result import Cost, EvaluationResult, Interval, ModelResult


def compared(result: EvaluationResult, **models: tuple[float, float]) -> EvaluationResult:
    """The result with models of these FLOPs and accuracies."""
    found = tuple(
        ModelResult(name=name, kind="single", metrics={"cls/accuracy": accuracy}, cost=Cost(flops=flops))
        for name, (flops, accuracy) in models.items()
    )
    return result.model_copy(update={"models": found})


def test_the_frontier_holds_what_no_other_model_beats(fused_evaluation) -> None:
    result = compared(
        fused_evaluation.result, cheap=(1.0, 0.7), good=(2.0, 0.9), beaten=(3.0, 0.8), best=(9.0, 0.95), twin=(2.0, 0.9)
    )
    (data,) = measure_tradeoffs(result)
    assert (data.cost, data.quality) == ("cost/flops", "cls/accuracy")
    assert {point.model for point in data.points if point.on_frontier} == {"cheap", "good", "best", "twin"}
    with drawing():
        picture = draw_tradeoff(data, Look([*list("abcde"), "cheap", "good", "beaten", "best", "twin"]))
    assert "Worth their price: cheap, good, best and twin." in picture.description


def test_one_model_is_no_comparison(fused_evaluation) -> None:
    assert measure_tradeoffs(compared(fused_evaluation.result, alone=(1.0, 0.5))) == ()


def test_lower_is_better_for_surprise_and_intervals_are_kept(fused_evaluation) -> None:
    models = tuple(
        ModelResult(
            name=name,
            kind="single",
            metrics={"cls/nll": nll},
            intervals={"cls/nll": Interval(low=nll - 0.1, high=nll + 0.1)},
            cost=Cost(flops=flops),
        )
        for name, nll, flops in (("worse", 0.9, 5.0), ("better", 0.3, 4.0))
    )
    (data,) = measure_tradeoffs(fused_evaluation.result.model_copy(update={"models": models}))
    assert [point.on_frontier for point in data.points] == [False, True]
    assert data.points[1].low == pytest.approx(0.2)


def test_costs_far_apart_are_drawn_on_a_logarithmic_axis(fused_evaluation) -> None:
    for flops, scale in ((2.0, "linear"), (500.0, "log")):
        (data,) = measure_tradeoffs(compared(fused_evaluation.result, a=(1.0, 0.5), b=(flops, 0.6)))
        with drawing():
            (axes,) = draw_tradeoff(data, Look(["a", "b"])).figure.axes
        assert axes.get_xscale() == scale
