"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.report import examples, overview, words
from compress.evaluation.report.content import ReportContent
from compress.evaluation.report.look import Look
from compress.evaluation.report.palette import DARK, LIGHT, MODEL_ROLES, css_variables
from compress.evaluation.report.sections import Section
from compress.evaluation.report.svg import inline_svg, printable


def render_page(content: ReportContent, sections: Sequence[Section]) -> str:
    """The HTML. Names, labels and sentences are escaped; the only markup that passes is that of the pictures."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("compress.evaluation.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    template = environment.get_template("page.html.jinja")
    css, _, _ = environment.loader.get_source(environment, "page.css") if environment.loader else ("", None, None)
    result = content.result
    look = Look([model.name for model in result.models])
    return template.render(
        content=content,
        result=result,
        css=Markup(css),
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        roles={model.name: look.role(model.name) for model in result.models},
        rings={model.name for model in result.models[len(MODEL_ROLES) :]},
        cards=overview.cards(result),
        sentences=overview.sentences(result, content.subject),
        groups=overview.table_groups(result),
        verdicts=overview.VERDICT_WORDS,
        metrics=catalogue(result.ood, result.corruptions),
        sections=[(section, [Markup(inline_svg(picture)) for picture in section.pictures]) for section in sections],
        galleries=_galleries(content),
        inputs_explanation=_inputs_explanation(content),
        words=words,
    )


def _galleries(content: ReportContent) -> list[tuple[str, Sequence[examples.Example]]]:
    shown = content.examples
    if shown is None:
        return []
    galleries = [("Least certain", shown.least_certain), ("Most certain", shown.most_certain)]
    return [(title, inputs) for title, inputs in galleries if inputs]


def _inputs_explanation(content: ReportContent) -> str:
    shown = content.examples
    if shown is None:
        return ""
    whose = "its answer" if len(content.result.models) == 1 else "every model’s answer"
    return examples.EXPLANATION.format(model=shown.model, whose=whose)


def _finalize(value: Any) -> Any:
    """Characters that HTML forbids become visible marks, wherever a text comes from."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
