from __future__ import annotations

import pytest

from compress.errors import UsageError
from compress.evaluation.gates import check_gates, parse_gates
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.result import Cost, ModelResult

MODELS = ["single", "fused", "fused-9", "timm:vit"]


def parse(*texts: str):
    return parse_gates(texts, metrics=catalogue(["svhn"]), models=MODELS)


def model(name: str, *, baseline: bool = False, cost: Cost | None = None, **metrics: float | None) -> ModelResult:
    values = {name.replace("_", "/", 1): value for name, value in metrics.items()}
    reasons = {name: "the set has no labels" for name, value in values.items() if value is None}
    return ModelResult(name=name, kind="fused", baseline=baseline, metrics=values, reasons=reasons, cost=cost or Cost())


def failures(text: str, *models: ModelResult) -> list[str]:
    gates = parse_gates([text], metrics=catalogue(["svhn"]), models=[entry.name for entry in models])
    return [failure.message for failure in check_gates(gates, models)]


@pytest.mark.parametrize(
    ("text", "value", "fails"),
    [
        ("cal/ece > 0.05", 0.06, True),
        ("cal/ece > 0.05", 0.05, False),
        ("cal/ece>=0.05", 0.05, True),
        ("cal/ece < 5e-2", 0.04, True),
        ("cal/ece <= .05", 0.05, True),
        (" cal/ece  <  -1 ", 0.0, False),
    ],
)
def test_comparisons(text, value, fails) -> None:
    assert bool(failures(text, model("fused", cal_ece=value))) is fails


def test_message_has_model_metric_value_and_limit() -> None:
    (line,) = failures("cal/ece > 0.05", model("fused", cal_ece=0.0612345678))
    assert line == 'gate "cal/ece > 0.05" failed for fused: cal/ece = 0.0612346 > 0.05'
    models = [model("single", cls_accuracy=0.97), model("fused", cls_accuracy=0.95)]
    (line,) = failures("cls/accuracy < single - 0.01", *models)
    assert line.endswith("cls/accuracy = 0.95 < single - 0.01 = 0.96")


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("cls/accuracy < single - 0.01", True),
        ("cls/accuracy < single-0.01", True),
        ("cls/accuracy < single - 0.03", False),
        ("cls/accuracy < single", True),
        ("cls/accuracy < single * 0.99", True),
        ("cls/accuracy < single + 1e-1", True),
        ("cls/accuracy > single", False),
    ],
)
def test_limits_relative_to_a_model(text, fails) -> None:
    assert bool(failures(text, model("single", cls_accuracy=0.97), model("fused", cls_accuracy=0.95))) is fails


def test_a_model_is_not_compared_with_itself() -> None:
    models = [model("single", cls_accuracy=0.9), model("fused", cls_accuracy=0.95)]
    assert failures("cls/accuracy <= single", *models) == []
    assert "no other model" in failures("cls/accuracy < single - 0.01", models[0])[0]


def test_model_names_with_signs_and_colons() -> None:
    gate, named = parse("cls/nll > fused-9 + 0.5", "timm:vit: cal/ece > 0.1")
    assert (gate.limit.model, gate.limit.change, gate.limit.number) == ("fused-9", "+", 0.5)
    assert (named.subject, named.metric) == ("timm:vit", "cal/ece")


def test_baselines_are_passed_over_unless_named() -> None:
    models = [model("single", baseline=True, cal_ece=0.5), model("fused", cal_ece=0.01)]
    assert failures("cal/ece > 0.05", *models) == []
    assert len(failures("single: cal/ece > 0.05", *models)) == 1
    assert len(failures("cal/ece > 0.05", models[0])) == 1  # nothing but baselines: they are what is tested


def test_every_model_gets_its_own_line() -> None:
    lines = failures("cal/ece > 0.05", model("a", cal_ece=0.2), model("b", cal_ece=0.01), model("c", cal_ece=0.3))
    assert [line.split(" failed for ")[1].split(":")[0] for line in lines] == ["a", "c"]


def test_a_metric_without_value_fails_in_both_directions() -> None:
    for sign in "<>":
        (line,) = failures(f"cal/ece {sign} 0.05", model("fused", cal_ece=None))
        assert line.endswith("cal/ece has no value (the set has no labels)")
        (line,) = failures(f"ood/svhn/auroc {sign} 0.5", model("fused"))
        assert line.endswith("ood/svhn/auroc has no value (not computed)")


def test_a_limit_without_value_fails() -> None:
    (line,) = failures("cal/ece > single", model("single", cal_ece=None), model("fused", cal_ece=0.1))
    assert line.endswith("cal/ece of single has no value (the set has no labels)")


def test_costs() -> None:
    models = [model("single", cost=Cost(params=100)), model("fused", cost=Cost(params=140))]
    assert len(failures("cost/params > single * 1.2", *models)) == 1
    assert failures("cost/params > single * 1.5", *models) == []
    assert "not measured" in failures("cost/latency_ms > 10", models[0])[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cal/ecce > 0.05", "unknown metric 'cal/ecce'; did you mean 'cal/ece'?"),
        ("ood/shvn/auroc < 0.9", "unknown metric 'ood/shvn/auroc'; did you mean 'ood/svhn/auroc'?"),
        ("fused: cls/accuracy < fused", "compares 'fused' with itself; name another model"),
        ("cls/accuracy < singel - 0.01", "neither a number nor a model of this call; did you mean 'single'?"),
        ("fusd: cal/ece > 0.1", "no model 'fusd' in this call"),
        ("cls/accuracy < single / 2", "not a limit"),
        ("cal/ece > nan", "neither a number"),
        ("cal/ece > inf", "neither a number"),
        ("cal/ece", "not a gate"),
        ("cal/ece >", "not a gate"),
        ("0.1 < cal/ece < 0.2", "not a gate"),
        ("cal/ece == 0.1", "not a gate"),
        ("", "not a gate"),
    ],
)
def test_mistakes_are_answered_before_anything_is_computed(text, message) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert f"--fail-if {text!r}" in str(caught.value)
    assert "\n" not in str(caught.value)
