"""A picture of the report and the words that come with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from matplotlib.figure import Figure

_UNSAFE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, eq=False)
class Picture:
    """One drawing.

    Attributes:
        name: of its file, without ``.png``; unique in the report.
        figure: the drawing.
        description: for those who cannot see it: what it shows, with the figures that matter.
        tips: what a pointer on a mark shows, by the mark's gid.
    """

    name: str
    figure: Figure
    description: str
    tips: Mapping[str, str] = field(default_factory=dict)


def picture_name(kind: str, subject: str, position: int) -> str:
    """A file name without suffix: ``reliability-1-fused``; the position keeps names apart that only differ in signs."""
    words = _UNSAFE.sub("-", subject.lower()).strip("-")[:40]
    return "-".join(part for part in (kind, str(position + 1), words) if part)
