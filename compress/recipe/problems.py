"""Check plain values against a schema and say what is wrong in the recipe's own terms: its lines, its keys."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from compress.errors import RecipeError
from compress.options import Options
from compress.recipe.hints import Hints
from compress.recipe.value_errors import MISSING_KEY, UNKNOWN_KEY, describe_value, own_words, suggestion
from compress.recipe.yaml_source import KeyPath, Source

M = TypeVar("M", bound=Options)


@dataclass(frozen=True)
class Section:
    """A mapping of a recipe: where it stands and which schema it follows.

    Attributes:
        schema: the schema of its keys.
        path: its place among the recipe's values; empty for the top level.
        name: ``data``, ``model``, ``runtime``, a stage's name, or None for the top level.
        is_stage: whether ``name`` is a stage's.
    """

    schema: type[Options]
    path: KeyPath = ()
    name: str | None = None
    is_stage: bool = False

    def __str__(self) -> str:
        """How a message names the section, with a leading blank; empty for the top level."""
        if self.name is None:
            return ""
        return f" in stage {self.name}" if self.is_stage else f" under {self.name}:"


@dataclass
class Problems:
    """What was found wrong in one source, in the order of finding."""

    source: Source
    hints: Hints
    found: list[RecipeError] = field(default_factory=list)

    def add(self, path: KeyPath, what: str, fix: str | None = None) -> None:
        """Note a problem with the value at ``path``."""
        self.found.append(RecipeError(what, where=self.source.where(path), fix=fix))

    def raise_first(self) -> None:
        """Raise the first problem, if there is one, with the number of others."""
        if not self.found:
            return
        first, others = self.found[0], len(self.found) - 1
        more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
        raise RecipeError(first.what + more, where=first.where, fix=first.fix)

    def validated(self, section: Section, values: Mapping[str, Any], schema: type[M]) -> M | None:
        """An instance of ``schema`` (the section's), or None after noting what is wrong with the values."""
        before = len(self.found)
        result = None
        try:
            result = schema.model_validate(values)
        except ValidationError as error:
            details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != UNKNOWN_KEY)
            for path, group in groupby(details, key=lambda detail: _written_path(detail["loc"], values)):
                self._note(section, path, list(group))
        for key, value in values.items():
            if isinstance(value, bool) and not _may_be_switch(schema, key):
                shown = str(value).lower()
                self.add((*section.path, key), f"{key!r}{section} is {shown} but must be a number", "write a number")
        return result if len(self.found) == before else None

    def _note(self, section: Section, path: KeyPath, errors: Sequence[ErrorDetails]) -> None:
        first = errors[0]
        place = (*section.path, *path)
        if first["type"] == UNKNOWN_KEY:
            key = str(path[-1])
            self.add(place, f"unknown key {key!r}{section}", self.hints.for_key(key, section.name, section.schema))
        elif first["type"] == MISSING_KEY:
            key = str(first["loc"][-1])
            self.add(place, f"the key {key!r} is missing{section}", f"add '{key}:'")
        else:
            named = ".".join(str(part) for part in path)
            field_name = str(path[0]) if path else ""
            own = own_words(errors)
            if own is not None:
                what = f"{named!r}{section}: {own}" if named else f"{own}{section}"
            else:
                what = f"{named!r}{section} {describe_value(errors)}"
            self.add(place, what, suggestion(first, section.schema, field_name))


def _written_path(location: Sequence[int | str], values: Mapping[str, Any]) -> KeyPath:
    """The part of pydantic's location that names written values; it also holds names of union branches."""
    path: list[int | str] = []
    at: Any = values
    for part in location:
        inside = part in at if isinstance(at, Mapping) else isinstance(at, list) and isinstance(part, int)
        if not inside:
            break
        path.append(part)
        at = at[part]
    return tuple(path)


def _may_be_switch(schema: type[Options], key: str) -> bool:
    """Whether true and false are values of the field; pydantic would take them for the numbers 1 and 0."""
    if key not in schema.model_fields:
        return True
    annotation = schema.model_fields[key].annotation
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    numbers = [member for member in members if member in (int, float) or get_args(member)[:1] in ((int,), (float,))]
    return bool in members or not numbers
