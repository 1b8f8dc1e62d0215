"""The whole report: complete, self-contained, safe, and true to its data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from compress.data.sequence import SequenceDataset
from compress.evaluation.gates import FailedGate
from compress.evaluation.report import overview
from compress.evaluation.report.content import ReportContent, gather_content
from compress.evaluation.report.write import write_content, write_report

VOID = {"meta", "img", "br", "link", "input"}
ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>&lt;'
KINDS = ["single", "fused"]


class Page(HTMLParser):
    """What the tests ask of a page: its elements, their attributes and texts, and that tags are balanced."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def written(evaluation, folder: Path) -> tuple[Page, ReportContent, str]:
    write_report(evaluation, folder)
    source = (folder / "index.html").read_text(encoding="utf-8")
    content = ReportContent.from_json((folder / "report.json").read_text(encoding="utf-8"))
    return Page(source), content, source


def check_whole(page: Page, source: str) -> None:
    """Every page is balanced, loads nothing, and shows no failed number."""
    assert page.open == []
    for _, attributes in page.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:image/png;base64,")), value
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe", "object", "embed", "base"})
    assert not re.search(r"@import|url\((?!#)", source)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(page.texts))
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    assert {value[1:] for link in page.of("a") if (value := link["href"])} <= set(identifiers)


@pytest.fixture(scope="module")
def report(fused_evaluation, tmp_path_factory) -> tuple[Page, ReportContent, str, Path]:
    folder = tmp_path_factory.mktemp("report") / "out"
    return *written(fused_evaluation, folder), folder


def test_the_folder_holds_page_pictures_and_data(report) -> None:
    page, content, source, folder = report
    check_whole(page, source)
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "pictures", "report.json"]
    pictures = sorted(path.stem for path in (folder / "pictures").iterdir())
    assert pictures == [
        "diversity-1-fused",
        "heads-1-fused",
        "reliability-1-single",
        "reliability-2-fused",
        "risk-coverage",
        "roc-1-noise",
        "scores-1-noise",
        "tradeoff-accuracy-flops",
        "tradeoff-accuracy-latency-ms",
        "tradeoff-nll-flops",
        "tradeoff-nll-latency-ms",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (folder / "pictures").iterdir())
    assert content.subject == "fused"


def test_every_picture_is_in_the_page_and_described(report) -> None:
    page, _, _, folder = report
    pictures = [attributes for attributes in page.of("svg") if attributes.get("class") == "picture"]
    assert len(pictures) == len(list((folder / "pictures").iterdir()))
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"] or "") > 30


def test_numbers_in_the_page_are_those_of_the_json(report) -> None:
    page, content, _, _ = report
    shown = [attributes for attributes in page.of("data") if "data-metric" in attributes]
    result = content.result
    for attributes in shown:
        expected = result.value(attributes["data-model"] or "", attributes["data-metric"] or "")
        assert float(attributes["value"] or "") == expected
    seen = {(attributes["data-model"], attributes["data-metric"]) for attributes in shown}
    for model in result.models:
        for name, value in model.metrics.items():
            assert ((model.name, name) in seen) == (value is not None)
        assert (model.name, "cost/latency_ms") in seen
    probabilities = [answer.probability for example in content.examples.least_certain for answer in example.answers]
    unnamed = [float(attributes["value"] or "") for attributes in page.of("data") if "data-metric" not in attributes]
    assert unnamed[: len(probabilities)] == probabilities


def test_the_same_data_give_the_same_files_and_the_json_suffices(report, tmp_path: Path) -> None:
    _, content, _, folder = report
    write_content(content, tmp_path / "again")
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / "again" / path.relative_to(folder)).read_bytes() == path.read_bytes(), path.name


def test_readers_choose_light_or_dark_and_phones_are_served(report) -> None:
    _, _, source, _ = report
    assert "prefers-color-scheme: dark" in source
    assert 'name="viewport"' in source
    assert "default-src 'none'" in source


def test_hostile_names_labels_and_sentences_stay_text(evaluation_of, logits_of, tmp_path: Path) -> None:
    classes = [ATTACK, "{{ 7 * 7 }}", "\x00\x1b[31m"]
    data = SequenceDataset(
        [f"{ATTACK} {number}" for number in range(12)],
        "text",
        class_names=classes,
        labels=[number % 3 for number in range(12)],
        reference=ATTACK,
        ids=[f"{ATTACK}{number}" for number in range(12)],
    )
    models = {ATTACK: logits_of(1, 12, 3, 0), "$\\frac{1}{2}$": logits_of(2, 12, 3, 1)}
    gate = FailedGate(gate=ATTACK, model=ATTACK, value=1.0, limit=0.5, message=f"gate {ATTACK} failed")
    page, _, source = written(evaluation_of(models, data, failed_gates=(gate,)), tmp_path / "out")
    check_whole(page, source)
    assert not any("onerror" in attributes for _, attributes in page.elements)
    text = "".join(page.texts)
    assert ATTACK in text
    assert "{{ 7 * 7 }}" in text
    assert "$\\frac{1}{2}$" in text
    assert "1 gate failed" in text
    assert not re.search("[\x00-\x08\x1b]", source)


def test_one_model_without_foreign_inputs_or_members(evaluation_of, logits_of, texts_of, tmp_path: Path) -> None:
    page, content, source = written(evaluation_of({"alone": logits_of(1, 30, 4, 0)}, texts_of(30, 4)), tmp_path / "o")
    check_whole(page, source)
    assert sorted(path.stem for path in (tmp_path / "o" / "pictures").iterdir()) == [
        "reliability-1-alone",
        "risk-coverage",
    ]
    text = " ".join(page.texts)
    for absent in ("within noise", "foreign", "Foreign", "members differ", "alone beside", "compare with"):
        assert absent not in text
    assert content.gaps == ()


def test_images_are_inlined_and_tiny_ones_enlarged_sharply(evaluation_of, logits_of, tmp_path: Path) -> None:
    sizes = [(8, 8)] * 9 + [(300, 200)]
    images = [Image.fromarray(np.full((height, width), 90, np.uint8)) for width, height in sizes]
    data = SequenceDataset(images, "image", class_names=["a", "b"], labels=[0, 1] * 5)
    page, _, source = written(evaluation_of({"m": logits_of(1, 10, 2, 0)}, data), tmp_path / "out")
    check_whole(page, source)
    found = list(page.of("img"))
    assert len(found) == 10
    assert [attributes.get("class") for attributes in found].count("tiny") == 9
    assert all("labelled" in (attributes["alt"] or "") for attributes in found)


def test_a_thousand_classes(evaluation_of, logits_of, texts_of, tmp_path: Path) -> None:
    evaluation = evaluation_of({"m": logits_of(3, 40, 1000, 0, 4.0)}, texts_of(40, 1000))
    page, _, source = written(evaluation, tmp_path / "out")
    check_whole(page, source)
    assert len(source) < 500_000
    assert "1,000 classes" in " ".join(" ".join(page.texts).split())


def test_broken_logits_leave_reasons_and_no_pictures(evaluation_of, logits_of, texts_of, tmp_path: Path) -> None:
    logits = logits_of(2, 12, 3, 0)
    logits[0, 3] = torch.nan
    page, content, source = written(evaluation_of({"bad": logits}, texts_of(12, 3)), tmp_path / "out")
    check_whole(page, source)
    assert {gap.what for gap in content.gaps} == {
        "reliability of bad",
        "risk and coverage of bad",
        "diversity of bad",
    }
    assert "are not finite" in " ".join(page.texts)


def test_an_empty_foreign_set_is_a_gap(evaluation_of, logits_of, texts_of, tmp_path: Path) -> None:
    foreign = {"nothing": {"m": torch.zeros(1, 0, 3)}}
    evaluation = evaluation_of({"m": logits_of(1, 12, 3, 0)}, texts_of(12, 3), foreign)
    page, content, source = written(evaluation, tmp_path / "out")
    check_whole(page, source)
    assert [gap.what for gap in content.gaps] == ["detection of nothing by m"]


def test_the_subject_is_the_last_model_that_is_no_baseline(fused_evaluation) -> None:
    import dataclasses

    result = fused_evaluation.result
    models = (result.models[0], result.models[1].model_copy(update={"baseline": True}))
    changed = dataclasses.replace(fused_evaluation, result=result.model_copy(update={"models": models}))
    assert gather_content(changed).subject == "single"


def test_sentences_say_what_the_intervals_allow(fused_evaluation) -> None:
    result = fused_evaluation.result
    model = result.models[1]
    verdicts = {}
    for low, high in ((-0.2, -0.1), (-0.1, 0.1), (0.1, 0.2)):
        difference = model.differences["cls/accuracy"].model_copy(update={"low": low, "high": high})
        changed = model.model_copy(update={"differences": {**model.differences, "cls/accuracy": difference}})
        sentence = overview.sentences(result.model_copy(update={"models": (result.models[0], changed)}), "fused")[0]
        verdicts[low] = (sentence.verdict, sentence.text.rpartition(")")[2])
    assert verdicts == {
        -0.2: ("worse", ": worse."),
        -0.1: ("noise", ", which may be chance."),
        0.1: ("better", ": better."),
    }
    last = overview.sentences(result, "fused")[-1]
    assert last.text == "It needs 2.00× the work, 1.50× the time and 1.00× the parameters of single."


def test_lower_is_better_where_it_is(fused_evaluation) -> None:
    result = fused_evaluation.result
    model = result.models[1]
    difference = model.differences["cal/ece"].model_copy(update={"low": 0.1, "high": 0.2})
    changed = model.model_copy(update={"differences": {"cal/ece": difference}})
    groups = dict(overview.table_groups(result.model_copy(update={"models": (result.models[0], changed)})))
    row = next(row for row in groups["Quality"] if row.metric == "cal/ece")
    assert [cell.verdict for cell in row.cells] == [None, "worse"]
    accuracy = next(row for row in groups["Quality"] if row.metric == "cls/accuracy")
    assert accuracy.cells[1].verdict is None


def test_the_json_holds_no_nan(report) -> None:
    _, _, _, folder = report

    def refuse(name: str) -> float:
        raise AssertionError(name)

    assert json.loads((folder / "report.json").read_text(encoding="utf-8"), parse_constant=refuse)
