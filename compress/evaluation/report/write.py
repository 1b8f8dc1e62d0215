"""Writing a report: ``index.html`` with everything in it, the pictures as PNG, the data as JSON."""

from __future__ import annotations

from pathlib import Path

from compress.evaluation.evaluation import Evaluation
from compress.evaluation.report.content import ReportContent, gather_content
from compress.evaluation.report.folder import write_files
from compress.evaluation.report.look import drawing
from compress.evaluation.report.page import render_page
from compress.evaluation.report.sections import draw_sections
from compress.evaluation.report.svg import png


def write_report(evaluation: Evaluation, folder: Path) -> None:
    """Write the report of an evaluation; an earlier one in ``folder`` is replaced.

    Raises:
        ArtifactError: the folder holds something else, or cannot be written.
    """
    write_content(gather_content(evaluation), folder)


def write_content(content: ReportContent, folder: Path) -> None:
    """Write the report that shows ``content``, which may come from an earlier ``report.json``."""
    with drawing():
        sections = draw_sections(content)
        pictures = {f"{picture.name}.png": png(picture) for section in sections for picture in section.pictures}
        page = render_page(content, sections)
    write_files(folder, pictures=pictures, data=content.to_json().encode(), page=page.encode())
