"""The nearest valid key for a wrong one, wherever in a recipe it belongs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compress.options import Options
from compress.recipe.schema import SECTIONS, Recipe
from compress.recipe.stages.base import Stage
from compress.registry import Registry, nearest

STAGE_NAME_KEY = "name"
_DATA_SYNONYMS = {"valid": "validation", "val": "validation", "eval": "test", "out_of_distribution": "ood"}


def suggest(key: str, valid: Iterable[str], synonyms: Mapping[str, str] | None = None) -> str:
    """A hint such as ``did you mean 'keep'?``: the only key that starts like ``key``, a synonym, or the nearest.

    Args:
        key: the unknown key.
        valid: the keys that could stand in its place.
        synonyms: names that are not valid but mean one of them.
    """
    meanings = {**(synonyms or {}), **{name: name for name in valid}}
    choices = sorted(set(meanings.values()))
    started = [name for name in choices if name.startswith(key)]
    if len(started) == 1:
        return f"did you mean {started[0]!r}?"
    close = difflib.get_close_matches(key, sorted(meanings), n=1, cutoff=0.5)
    return f"did you mean {meanings[close[0]]!r}?" if close else nearest(key, choices)


@dataclass(frozen=True)
class Hints:
    """Hints for one recipe.

    Attributes:
        stages: the stages that exist.
        used: the stages of the recipe; they are looked at first.
    """

    stages: Registry[type[Stage]]
    used: Sequence[str] = ()

    def for_key(self, key: str, section: str | None, schema: type[Options]) -> str:
        """How to mend an unknown key.

        Args:
            key: the unknown key.
            section: the section it stands in (``data``, a stage's name), None for the top level.
            schema: the schema of that section.
        """
        elsewhere = self.elsewhere(key, section)
        if elsewhere:
            return elsewhere
        if section is not None and section in self.stages:
            return suggest(key, [*schema.model_fields, STAGE_NAME_KEY], self.stages[section].synonyms)
        return suggest(key, schema.model_fields, _DATA_SYNONYMS if section == "data" else None)

    def elsewhere(self, key: str, section: str | None) -> str | None:
        """Where else the key is valid, such as ``'keep' belongs under stages: - prune:``; None if nowhere."""
        if key in Recipe.model_fields:
            return f"{key!r} belongs at the top level of the recipe"
        if key in self.stages:
            return f"{key!r} is a stage and belongs in the list under stages: - {key}:"
        for name, schema in SECTIONS.items():
            if name != section and key in schema.model_fields and key != STAGE_NAME_KEY:
                return f"{key!r} belongs under {name}:"
        for name in dict.fromkeys([*(name for name in self.used if name in self.stages), *self.stages]):
            if name != section and key in self.stages[name].options.model_fields:
                return f"{key!r} belongs under stages: - {name}:"
        return None
