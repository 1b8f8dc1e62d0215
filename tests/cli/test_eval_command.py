"""``compress eval`` through the real command line: gates, JUnit XML, baselines, stored predictions."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny.pictures import pictures, save_pictures
from tiny.timm_cases import CASES

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.cli.eval_models import named_models
from compress.cli.main import main
from compress.errors import UsageError
from compress.evaluation.baselines.specification import Baseline
from compress.pruning.options import Prune
from compress.pruning.prune import prune

QUICK = ("--device", "cpu", "--no-latency", "--no-memory", "--no-intervals")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model ``m``, its pruned copies ``pruned`` and the data ``data``."""
    root = tmp_path_factory.mktemp("eval")
    model = CASES["timm plain"]().model
    save_model(model, root / "m", Provenance(stage="test"))
    prune(model, root / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    save_pictures(pictures(10, model.labels), root / "data")
    return root


@pytest.fixture(autouse=True)
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def evaluated(*arguments: str) -> int:
    return main(["eval", *arguments, *QUICK])


def test_a_failed_gate_ends_with_3_and_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gates = ("--fail-if", "cls/accuracy <= 1", "--fail-if", "cls/nll < 0", "--junit", str(tmp_path / "gates.xml"))
    assert evaluated("m", "pruned", "--data", "data", *gates) == 3
    captured = capsys.readouterr()
    assert "accuracy" in captured.out
    failures = [line for line in captured.err.splitlines() if line.startswith("gate ")]
    assert [line.split(":")[0] for line in failures] == [
        'gate "cls/accuracy <= 1" failed for m',
        'gate "cls/accuracy <= 1" failed for pruned',
    ]
    cases = ElementTree.parse(tmp_path / "gates.xml").getroot().iter("testcase")
    assert sorted((case.get("classname"), case.get("name"), case.find("failure") is None) for case in cases) == [
        ("m", "cls/accuracy <= 1", False),
        ("m", "cls/nll < 0", True),
        ("pruned", "cls/accuracy <= 1", False),
        ("pruned", "cls/nll < 0", True),
    ]


def test_gates_that_hold_end_with_0_and_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gates = ("--fail-if", "pruned:cls/accuracy < m - 1", "--junit", str(tmp_path / "g.xml"))
    assert evaluated("m", "pruned", "--data", "data", *gates) == 0
    assert capsys.readouterr().out.endswith("\ngates: all 1 passed\n")
    (case,) = ElementTree.parse(tmp_path / "g.xml").getroot().iter("testcase")
    assert (case.get("classname"), case.find("failure")) == ("pruned", None)


def test_a_gate_on_what_was_not_measured_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated("m", "--data", "data", "--fail-if", "cost/latency_ms > 1000") == 3
    assert "has no value (not measured)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("m", "--data", "data", "--fail-if", "cal/eec > 1"), "unknown metric 'cal/eec'; did you mean 'cal/ece'"),
        (("m", "--data", "data", "--fail-if", "shift/blur/ece > 1"), "unknown metric"),
        (("m", "--data", "data", "--shift", "blurr"), "did you mean 'blur'"),
        (("m", "--data", "data", "--shift", "typos"), "'typos' does not corrupt image data"),
        (("m",), "--data: a labelled test set is needed"),
        ((), "MODEL: no model is named"),
        (("temperature:m", "--data", "data"), "pass --calibration"),
        (("deep_ensemble:m", "--data", "data"), "an ensemble of 1 is none"),
        (("mc_dropout:m", "--data", "data"), "choose a rate with --dropout-rate"),
        (("--from", "nowhere", "--ood", "data"), "--ood: needs a model"),
        (("--from", "nowhere"), "there is no such folder"),
        (("m", "m", "--data", "data"), "two are called 'm'"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(*arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_baselines_shift_and_predictions_in_one_call(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    models = ("m", "deep_ensemble:m,pruned", "cooled=temperature:m", "mc_dropout:m", "pruned:pruned")
    more = ("--calibration", "data", "--dropout-rate", "0.1", "--dropout-passes", "2", "--shift", "contrast")
    assert evaluated(*models, "--data", "data", *more, "--predictions", kept, "--json", "-") == 0
    result = json.loads(capsys.readouterr().out)
    names = ["m", "deep_ensemble", "cooled", "mc_dropout", "pruned"]
    assert [model["name"] for model in result["models"]] == names
    assert [model["baseline"] for model in result["models"]] == [False, True, True, True, True]
    assert len(result["shift"]) == 5 * 5
    assert evaluated("m", "--data", "data", "--predictions", kept) == 2
    assert "is not empty" in capsys.readouterr().err
    assert evaluated("--from", kept, "--json", "-") == 0
    again = json.loads(capsys.readouterr().out)
    assert [model["metrics"] for model in again["models"]] == [model["metrics"] for model in result["models"]]
    assert again["shift"] == result["shift"]
    assert evaluated("--from", kept, "m", "x=deep_ensemble:m,mc_dropout", "--fail-if", "x:cls/accuracy <= 1") == 3
    assert evaluated("m", "--data", "data", "--predictions", kept, "--overwrite") == 0


def test_names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    found = named_models(["a/b", "n=timm:vit", "deep_ensemble:x,y", "d=deep_ensemble:x,z", "mc_dropout:m"])
    assert found == {
        "b": "a/b",
        "n": "timm:vit",
        "deep_ensemble": Baseline("deep_ensemble", ("x", "y")),
        "d": Baseline("deep_ensemble", ("x", "z")),
        "mc_dropout": Baseline("mc_dropout", ("m",)),
    }
    with pytest.raises(UsageError, match="two are called 'mc_dropout'"):
        named_models(["mc_dropout:a", "mc_dropout:b"])


def test_predictions_do_not_replace_the_model_they_are_of(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("m", "pruned/member-0"):
        assert main(["eval", "m", "pruned", "--data", "data", *QUICK, "--predictions", target, "--overwrite"]) == 2
        assert "the input" in capsys.readouterr().err
    assert main(["eval", "m", "--data", "data", *QUICK]) == 0
