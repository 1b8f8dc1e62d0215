"""Every row of every family."""

from __future__ import annotations

from collections.abc import Callable

from tiny import hf_cases, open_clip_cases, timm_cases
from tiny.case import Case

CASES: dict[str, Callable[[], Case]] = {**timm_cases.CASES, **hf_cases.CASES, **open_clip_cases.CASES}
ONE_PER_FAMILY = ("timm plain", "bert", "open_clip image")
