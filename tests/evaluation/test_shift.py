from __future__ import annotations

import pytest
from tiny.pictures import pictures
from tiny.timm_cases import CASES

from compress.data.corruptions.corrupted import corrupted
from compress.errors import UsageError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.evaluation.result import EvaluationResult, ShiftPoint
from compress.evaluation.shift import shift_metrics
from compress.recipe.value_errors import describe_value
from compress.runtime import Runtime

QUICK = Evaluate(latency=False, memory=False, intervals=False)
CPU = Runtime(device="cpu", batch_size=8)


def test_every_point_is_an_evaluation_of_the_corrupted_set() -> None:
    model = CASES["timm plain"]().model
    data = pictures(10, model.labels)
    options = QUICK.model_copy(update={"shift": ("contrast", "noise"), "seed": 4})
    result = evaluate({"a": model, "b": model}, data=data, options=options, runtime=CPU)
    assert [(point.corruption, point.severity, point.model) for point in result.shift] == [
        (corruption, severity, name)
        for corruption in ("contrast", "noise")
        for severity in (1, 2, 3, 4, 5)
        for name in ("a", "b")
    ]
    assert result.corruptions == ("contrast", "noise")
    alone = evaluate({"m": model}, data=corrupted(data, "noise", 4, seed=4), options=QUICK, runtime=CPU)
    point = next(point for point in result.shift if (point.corruption, point.severity) == ("noise", 4))
    assert point.nll == pytest.approx(alone.value("m", "cls/nll"))
    assert point.ece == pytest.approx(alone.value("m", "cal/ece"))
    assert point.accuracy == alone.value("m", "cls/accuracy")
    own = [point for point in result.shift if point.model == "a"]
    assert result.value("a", "shift/nll") == pytest.approx(sum(point.nll or 0 for point in own) / 10)
    noisy = [point.accuracy or 0 for point in own if point.corruption == "noise"]
    assert result.value("a", "shift/noise/accuracy") == pytest.approx(sum(noisy) / 5)
    assert "shifted: mean over contrast, noise" in " ".join(result.table().split())
    assert EvaluationResult.from_json(result.to_json()) == result


def test_gates_know_the_means_of_the_shift() -> None:
    model = CASES["timm plain"]().model
    options = QUICK.model_copy(update={"shift": ("blur",), "fail_if": ("shift/blur/accuracy <= 1", "shift/ece < 0")})
    result = evaluate({"m": model}, data=pictures(6, model.labels), options=options, runtime=CPU)
    assert [gate.gate for gate in result.failed_gates] == ["shift/blur/accuracy <= 1"]
    assert [gate.gate for gate in result.passed_gates] == ["shift/ece < 0"]
    with pytest.raises(UsageError, match="unknown metric 'shift/noise/accuracy'"):
        evaluate(
            {"m": model},
            data=pictures(6, model.labels),
            options=options.model_copy(update={"fail_if": ("shift/noise/accuracy < 1",)}),
            runtime=CPU,
        )


def test_corruptions_of_the_other_kind_are_refused_before_anything_is_computed() -> None:
    model = CASES["timm plain"]().model
    options = QUICK.model_copy(update={"shift": ("typos",)})
    with pytest.raises(UsageError, match="'typos' does not corrupt image data"):
        evaluate({"m": model}, data=pictures(6, model.labels), options=options, runtime=CPU)


def test_the_option_takes_commas_and_knows_its_words() -> None:
    assert Evaluate(shift="noise, blur").shift == ("noise", "blur")  # type: ignore[arg-type]
    assert Evaluate(shift=("noise,blur", "all")).shift == ("noise", "blur", "all")
    with pytest.raises(ValueError, match="'nois' is no corruption; did you mean 'noise'") as caught:
        Evaluate(shift=("nois",))
    assert "did you mean 'noise'" in describe_value(caught.value.errors())  # type: ignore[attr-defined]


def test_a_missing_figure_is_no_number() -> None:
    points = [
        ShiftPoint(model="m", corruption="blur", severity=1, accuracy=0.5, nll=1.0, ece=0.1),
        ShiftPoint(
            model="m", corruption="blur", severity=2, accuracy=0.4, nll=None, ece=0.2, reasons={"nll": "infinite"}
        ),
    ]
    found = shift_metrics(points, "m")
    assert found["shift/blur/accuracy"].value == pytest.approx(0.45)
    assert found["shift/nll"].value is None
    assert found["shift/nll"].reason == "blur, severity 2: infinite"
    assert shift_metrics(points, "other") == {}
