"""Options with several values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from compress.errors import UsageError
from compress.recipe.yaml_source import parse_yaml


class Several(click.ParamType):
    """Values of one type, separated by commas."""

    def __init__(self, inner: click.ParamType) -> None:
        self._inner = inner
        self.name = f"{inner.name},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """The values in their order."""
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(self._inner.convert(part, param, ctx) for part in parts)


def assigned(assignments: Iterable[str], option: str) -> dict[str, Any]:
    """``NAME=VALUE`` texts as a mapping; values are read as YAML.

    Raises:
        UsageError: a text without a name or an equals sign.
    """
    found = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise UsageError(f"{assignment!r} is no NAME=VALUE", where=option, fix="write for example img_size=28")
        found[name.strip()] = parse_yaml(text, name=f"{option} {assignment}", numbered=False).value
    return found
