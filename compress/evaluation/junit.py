"""Gates as JUnit XML, which CI servers show as tests."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from compress.evaluation.result import EvaluationResult

SUITE = "compress eval"
# What XML 1.0 cannot hold even when escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(result: EvaluationResult) -> bytes:
    """One test case per gate and model, in UTF-8; a gate that failed has a ``failure`` with its message.

    The class of a case is the model, its name the gate as written. No times: a gate takes none, and the same result
    gives the same bytes. The elements are those that Jenkins' and GitLab's readers share
    (https://github.com/testmoapp/junitxml).
    """
    cases: list[tuple[str, str, str | None]] = [(passed.gate, passed.model, None) for passed in result.passed_gates]
    cases += [(failed.gate, failed.model, failed.message) for failed in result.failed_gates]
    counts = {"tests": str(len(cases)), "failures": str(len(result.failed_gates)), "errors": "0", "time": "0"}
    root = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, **counts, "skipped": "0"})
    for gate, model, message in cases:
        attributes = {"classname": _clean(model), "name": _clean(gate), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", attributes)
        if message is not None:
            failure = ElementTree.SubElement(case, "failure", {"message": _clean(message), "type": "gate"})
            failure.text = _clean(message)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
