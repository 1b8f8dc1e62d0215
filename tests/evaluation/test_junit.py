from __future__ import annotations

from xml.etree import ElementTree

from compress.evaluation.environment import Environment
from compress.evaluation.gates import FailedGate, PassedGate
from compress.evaluation.junit import junit_xml
from compress.evaluation.result import DataSummary, EvaluationResult, ModelResult


def result(failed: list[FailedGate], passed: list[PassedGate]) -> EvaluationResult:
    return EvaluationResult(
        data=DataSummary(reference="d", fingerprint="f", samples=3, classes=2),
        environment=Environment(device="cpu", threads=1, dtype="float32", allocator="glibc"),
        models=(ModelResult(name="fused", kind="fused"),),
        failed_gates=tuple(failed),
        passed_gates=tuple(passed),
    )


def failure(gate: str, model: str = "fused", message: str = "too high") -> FailedGate:
    return FailedGate(gate=gate, model=model, value=0.1, limit=0.05, message=message)


def test_one_case_per_gate_and_model() -> None:
    passed = [PassedGate(gate="cls/accuracy < 0.8", model=name) for name in ("a", "b")]
    root = ElementTree.fromstring(junit_xml(result([failure("cal/ece > 0.05", "a")], passed)))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "0",
    }
    cases = [(case.get("classname"), case.get("name"), case.find("failure") is None) for case in suite]
    assert cases == [
        ("a", "cls/accuracy < 0.8", True),
        ("b", "cls/accuracy < 0.8", True),
        ("a", "cal/ece > 0.05", False),
    ]
    (wrong,) = suite.iter("failure")
    assert wrong.get("message") == wrong.text == "too high"


def test_odd_characters_stay_readable() -> None:
    written = junit_xml(result([failure("a < 1", message='"Modell é" & <東京>\x00\x1b')], []))
    assert written.startswith(b"<?xml version='1.0' encoding='utf-8'?>")
    (wrong,) = ElementTree.fromstring(written).iter("failure")
    assert wrong.text == '"Modell é" & <東京>??'


def test_no_gates_are_an_empty_suite_and_the_bytes_are_the_same_each_time() -> None:
    assert ElementTree.fromstring(junit_xml(result([], []))).get("tests") == "0"
    assert junit_xml(result([failure("x")], [])) == junit_xml(result([failure("x")], []))
