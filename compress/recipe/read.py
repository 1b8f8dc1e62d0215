"""From a recipe's text to a checked ``Recipe``, with every error at its line. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.errors import RecipeError
from compress.options import Options
from compress.recipe.hints import STAGE_NAME_KEY, Hints, suggest
from compress.recipe.overrides import apply_overrides, base_folder
from compress.recipe.paths import with_absolute_paths
from compress.recipe.problems import Problems, Section
from compress.recipe.schema import SECTIONS, Recipe, StageEntry, reference_as_mapping
from compress.recipe.stages import STAGES
from compress.recipe.stages.base import Stage
from compress.recipe.yaml_source import KeyPath, Source, read_yaml
from compress.registry import Registry


def read_recipe(path: Path, assignments: Sequence[str] = (), *, stages: Registry[type[Stage]] = STAGES) -> Recipe:
    """Read and check a recipe file.

    Args:
        path: the YAML file.
        assignments: ``stage.key=value`` changes, applied before the check.
        stages: the stages that exist.

    Returns:
        The recipe with all defaults, absolute paths, and the recipe's seed in every stage that has none of its own.

    Raises:
        RecipeError: the first thing that is wrong, with ``file:line`` and the nearest valid key or value.
    """
    source = read_yaml(path)
    if source.value is None:
        raise RecipeError("the recipe is empty", where=str(path), fix="start with 'model:', 'data:' and 'stages:'")
    if not isinstance(source.value, dict):
        raise RecipeError("a recipe is a mapping of keys", where=source.where(()), fix="start with 'model:'")
    written = apply_overrides(source, assignments)
    recipe = _checked(source, stages)
    return with_absolute_paths(recipe, base_folder(written, path.resolve().parent), stages)


def _checked(source: Source, stages: Registry[type[Stage]]) -> Recipe:
    plain: dict[str, Any] = source.value
    listed = plain.get("stages")
    used = [next(iter(item), "") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    problems = Problems(source, Hints(stages, used))
    values = {key: value for key, value in plain.items() if key != "stages"}
    for name in SECTIONS:
        if name in values:
            values[name] = _section(problems, name, values[name])
    whole = all(values.get(name, "absent") is not None for name in SECTIONS)
    recipe = problems.validated(Section(Recipe), values, Recipe) if whole else None
    reader = _StageReader(problems, stages, seed=recipe.seed if recipe else 0)
    entries = tuple(reader.entries(listed))
    problems.raise_first()
    if recipe is None:
        raise RecipeError("the recipe is not valid", where=source.name)
    return recipe.model_copy(update={"stages": entries})


def _section(problems: Problems, name: str, value: Any) -> Options | None:
    schema = SECTIONS[name]
    mapping = reference_as_mapping(value) if name == "model" else value or {}
    if not isinstance(mapping, dict):
        problems.add(
            (name,), f"{name!r} is not a mapping", f"write keys such as '{next(iter(schema.model_fields))}:' under it"
        )
        return None
    return problems.validated(Section(schema, (name,), name), mapping, schema)


@dataclass(frozen=True)
class _StageReader:
    """Reads the list under ``stages:``."""

    problems: Problems
    stages: Registry[type[Stage]]
    seed: int

    def entries(self, listed: object) -> Iterator[StageEntry]:
        """The stages that are right; what is wrong with the others is noted."""
        add = self.problems.add
        if isinstance(listed, dict):
            add(
                ("stages",),
                "stages is a mapping, not a list",
                f"start each stage with a dash: '- {next(iter(listed), '')}:'",
            )
        elif not isinstance(listed, list) or not listed:
            add(("stages",), "the recipe has no stages", "add a list such as '- prune: {keep: 4}' under stages:")
        else:
            entries = (self._entry(("stages", index), item) for index, item in enumerate(listed))
            yield from (entry for entry in entries if entry is not None)

    def _entry(self, path: KeyPath, item: object) -> StageEntry | None:
        add = self.problems.add
        mapping = {item: None} if isinstance(item, str) else item
        if not isinstance(mapping, dict) or not mapping:
            add(path, "a stage is its name and its keys", "write for example '- prune: {keep: 4}'")
            return None
        name, *strays = mapping
        if name not in self.stages:
            hints = self.problems.hints
            add((*path, name), f"unknown stage {name!r}", hints.elsewhere(name, "stages") or suggest(name, self.stages))
            return None
        if strays:
            stray = strays[0]
            new = f"start a new item '- {stray}:'"
            deeper = f"indent it: {stray!r} belongs one level deeper, under stages: - {name}:"
            what = f"{stray!r} stands beside {name!r} in one item"
            add((*path, stray), what, new if stray in self.stages else deeper)
            return None
        return self._options((*path, name), name, mapping[name])

    def _options(self, path: KeyPath, stage: str, values: object) -> StageEntry | None:
        if values is not None and not isinstance(values, dict):
            self.problems.add(
                path, f"the keys of stage {stage} are not a mapping", f"write '- {stage}: {{key: value}}'"
            )
            return None
        schema = self.stages[stage].options
        keys = dict(values or {})
        name = keys.pop(STAGE_NAME_KEY, stage)
        if "seed" in schema.model_fields:
            keys.setdefault("seed", self.seed)
        options = self.problems.validated(Section(schema, path, stage, is_stage=True), keys, schema)
        if options is None:
            return None
        entry = {"stage": stage, STAGE_NAME_KEY: name, "options": options}
        return self.problems.validated(Section(StageEntry, path, stage, is_stage=True), entry, StageEntry)
