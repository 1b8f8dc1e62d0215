"""An explicit, lazy table from names to objects."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar, cast

from compress.errors import UsageError

T = TypeVar("T")
MOST_LISTED = 40


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint such as ``did you mean 'keep'?``, or the first of the choices when nothing is near."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f", … ({len(known)} in all)" if len(known) > MOST_LISTED else ""
    return f"choose one of {', '.join(known[:MOST_LISTED])}{more}"


class Registry(Generic[T]):
    """Names mapped to ``"module:attribute"``; the module is imported when the name is first asked for.

    Args:
        kind: what the names stand for, as it appears in messages (``"adapter"``).
        entries: the table. A name can be added once only.
    """

    def __init__(self, kind: str, entries: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets: dict[str, str] = {}
        for name, target in entries.items():
            self.add(name, target)

    def add(self, name: str, target: str) -> None:
        """Add an entry; raises ``ValueError`` when the name is taken."""
        if name in self._targets:
            raise ValueError(f"{self.kind} {name!r} is registered twice: {self._targets[name]} and {target}")
        self._targets[name] = target

    def __contains__(self, name: str) -> bool:
        return name in self._targets

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __getitem__(self, name: str) -> T:
        """The object under ``name``; raises ``UsageError`` with the nearest name when there is none."""
        if name not in self._targets:
            raise UsageError(f"unknown {self.kind} {name!r}", fix=nearest(name, self._targets))
        module, _, attribute = self._targets[name].partition(":")
        return cast(T, getattr(importlib.import_module(module), attribute))
