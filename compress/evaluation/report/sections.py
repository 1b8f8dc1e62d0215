"""The pictures of a report in their order, each group with the sentence that explains it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from compress.evaluation.report import (
    branching,
    budgets,
    detection,
    diversity,
    heads,
    reliability,
    risk_coverage,
    routes,
    severity,
    tradeoff,
)
from compress.evaluation.report.content import ReportContent
from compress.evaluation.report.look import Look
from compress.evaluation.report.picture import Picture


@dataclass(frozen=True, eq=False)
class Section:
    """Pictures that answer one question.

    Attributes:
        key: its anchor in the page.
        title: the question.
        short: its name in the table of contents.
        explanation: how to read the pictures, in plain words.
        pictures: at least one.
    """

    key: str
    title: str
    short: str
    explanation: str
    pictures: tuple[Picture, ...]


def draw_sections(content: ReportContent) -> list[Section]:
    """Draw everything there are data for; call within ``look.drawing``."""
    look = Look([model.name for model in content.result.models])
    return [section for section in _sections(content, look) if section.pictures]


def _sections(content: ReportContent, look: Look) -> Iterator[Section]:
    yield from _answers(content, look)
    yield from _insides(content, look)


def _answers(content: ReportContent, look: Look) -> Iterator[Section]:
    """How good the models are, and what that costs."""
    yield Section(
        "cost",
        "What does quality cost?",
        "Cost",
        tradeoff.EXPLANATION,
        tuple(tradeoff.draw_tradeoff(data, look) for data in content.tradeoffs),
    )
    yield Section(
        "reliability",
        "Is it right as often as it says?",
        "Reliability",
        reliability.EXPLANATION,
        tuple(reliability.draw_reliability(data, look, place) for place, data in enumerate(content.reliability)),
    )
    yield Section(
        "refusing",
        "What if it may say “I don’t know”?",
        "Doubt",
        risk_coverage.EXPLANATION,
        (risk_coverage.draw_risk_coverage(content.risk_coverage, look),) if content.risk_coverage else (),
    )
    yield Section(
        "foreign",
        "Does it notice what it was not made for?",
        "Foreign inputs",
        detection.EXPLANATION,
        tuple(_detection(content, look)),
    )
    yield Section(
        "shift",
        "What if the inputs get worse?",
        "Shift",
        severity.EXPLANATION,
        tuple(severity.draw_severities(content.result, look)),
    )


def _insides(content: ReportContent, look: Look) -> Iterator[Section]:
    """What the models keep, run and skip."""
    yield Section(
        "heads",
        "Which attention heads were kept?",
        "Heads",
        heads.explanation(content.heads),
        tuple(heads.draw_heads(data, look, place) for place, data in enumerate(content.heads)),
    )
    yield Section(
        "budgets",
        "Which inputs get more heads?",
        "Budgets",
        budgets.EXPLANATION,
        tuple(
            draw(data, look, place)
            for place, data in enumerate(content.budgets)
            for draw in (budgets.draw_difficulty, budgets.draw_layers, budgets.draw_inputs)
        ),
    )
    yield Section(
        "routes",
        "Which tokens pass the routed blocks?",
        "Routes",
        routes.EXPLANATION,
        tuple(routes.draw_routes(data, look, place) for place, data in enumerate(content.routes)),
    )
    yield Section(
        "members",
        "Do the members differ?",
        "Members",
        diversity.EXPLANATION,
        tuple(diversity.draw_diversity(data, look, place) for place, data in enumerate(content.diversity)),
    )
    yield Section(
        "branching",
        "Where should members part?",
        "Branch",
        branching.EXPLANATION,
        tuple(branching.draw_branching(data, look, place) for place, data in enumerate(content.branching)),
    )


def _detection(content: ReportContent, look: Look) -> Iterator[Picture]:
    for place, (_, group) in enumerate(groupby(content.detection, key=lambda entry: entry.dataset)):
        models = list(group)
        yield detection.draw_scores(models, look, place)
        yield detection.draw_roc(models, look, place)
