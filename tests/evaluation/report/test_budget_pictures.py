"""Budgets in the report: harder inputs, layers, and the extremes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from compress.data.sequence import SequenceDataset
from compress.evaluation.evaluation import Evaluation
from compress.evaluation.input_use import InputUse
from compress.evaluation.report.budgets import GROUPS, SHOWN
from compress.evaluation.report.content import ReportContent, gather_content
from compress.evaluation.report.look import drawing
from compress.evaluation.report.overview import kind_words
from compress.evaluation.report.sections import draw_sections
from compress.evaluation.result import ModelResult
from compress.evaluation.use_summary import ShareSummary


def with_use(evaluation: Evaluation, name: str, heads: Tensor) -> Evaluation:
    flops = heads.double().mean(1)
    used = dataclasses.replace(evaluation.predictions[name], use=InputUse(flops, flops, heads))
    return dataclasses.replace(evaluation, predictions={**evaluation.predictions, name: used})


def test_budgets_are_compared_with_the_loss_of_the_first_model(
    evaluation_of: Callable[..., Evaluation],
    logits_of: Callable[..., Tensor],
    texts_of: Callable[[int, int], SequenceDataset],
) -> None:
    logits = {name: logits_of(1, 60, 3, seed) for seed, name in enumerate(("single", "budgeted"))}
    evaluation = evaluation_of(logits, texts_of(60, 3))
    loss = evaluation.predictions["single"].test.nll
    assert loss is not None
    rank = loss.argsort().argsort() / 60
    heads = torch.stack([rank, rank * 0.5 + 0.1], 1).float().clamp(0.05, 1)
    content = gather_content(with_use(evaluation, "budgeted", heads))
    (found,) = content.budgets
    assert (found.model, found.reference) == ("budgeted", "single")
    assert found.correlation is not None
    assert found.correlation > 0.99
    means = [group.mean for group in found.groups]
    assert len(means) == GROUPS
    assert means == sorted(means)
    assert found.cheap_layers < found.layers < found.expensive_layers
    assert len(found.cheap) == len(found.expensive) == SHOWN
    assert found.cheap[0].share < found.expensive[0].share
    assert found.expensive[0].text == f"sentence {int(loss.argmax())}"
    assert ReportContent.from_json(content.to_json()) == content
    with drawing():
        sections = {section.key: section for section in draw_sections(content)}
    assert [picture.name.rpartition("-")[0] for picture in sections["budgets"].pictures]
    assert len(sections["budgets"].pictures) == 3


def test_a_model_that_runs_a_part_of_itself_is_not_called_whole() -> None:
    half = ShareSummary(mean=0.5, p05=0.5, p95=0.5, histogram=(0,) * 10, layers=(0.5,))
    assert kind_words(ModelResult(name="m", kind="single")) == "one model, nothing removed"
    assert kind_words(ModelResult(name="m", kind="single", budget=half)).startswith("one model; 50")
    words = kind_words(ModelResult(name="m", kind="fused", members=3, budget=half, kept_tokens=half))
    assert words.startswith("3 members fused into one model; 50")
    assert words.endswith("of the tokens pass routed layers")


def test_without_budgets_there_is_no_such_section(
    evaluation_of: Callable[..., Evaluation],
    logits_of: Callable[..., Tensor],
    texts_of: Callable[[int, int], SequenceDataset],
) -> None:
    content = gather_content(evaluation_of({"single": logits_of(1, 20, 3, 0)}, texts_of(20, 3)))
    assert content.budgets == ()
    with drawing():
        assert "budgets" not in {section.key for section in draw_sections(content)}
