"""The one schema of a recipe. Stage options come from the stages themselves (``compress.recipe.stages``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, WithJsonSchema, field_validator

from compress.backbones.source import ModelSource
from compress.options import Options
from compress.references import scheme_of
from compress.runtime import Runtime

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
RESERVED_STAGE_NAMES = frozenset({"model", "data", "runtime", "seed", "stages"})


def _number_as_label(value: object) -> object:
    """A class called ``7`` may be written without quotes; ``true`` may not, since nobody knows what was typed."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Label = Annotated[
    str, BeforeValidator(_number_as_label), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}]})
]


class RecipeModel(ModelSource):
    """The model that the first stage starts from: a family's, or an artifact, which has no family."""

    adapter: str | None = Field(  # type: ignore[assignment]
        None, description="Model family: timm, hf, open_clip or builtin; none for a folder."
    )
    name: str = Field(min_length=1, description="The family's name of the model, or a folder.")
    labels: tuple[Label, ...] | None = Field(None, description="Class names, in the order of the logits.")

    @property
    def reference(self) -> str:
        """``adapter:name``, or the folder."""
        return f"{self.adapter}:{self.name}" if self.adapter else self.name

    @property
    def details(self) -> dict[str, Any]:
        """What was set beside the reference."""
        return self.model_dump(exclude={"adapter", "name"}, exclude_defaults=True)


class DataSources(Options):
    """References to the data, each like the ``--data`` of a command."""

    train: str | None = Field(None, description="Labelled data to fine-tune on.")
    validation: str | None = Field(None, description="Labelled data on which the best checkpoint is chosen.")
    calibration: str | None = Field(None, description="Data on which heads are scored (default: train).")
    test: str | None = Field(None, description="Labelled data to evaluate on.")
    ood: dict[Annotated[str, Field(pattern=NAME_PATTERN)], str] = Field(
        default_factory=dict, description="Foreign data for out-of-distribution detection, by name."
    )
    ood_validation: str | None = Field(
        None, description="Foreign data that circuits are searched with; not one of those that are evaluated on."
    )
    root: str | None = Field(None, description="Folder that relative references start from (default: the recipe's).")
    text_column: str | None = Field(None, description="Column of a table that holds the text.")
    label_column: str | None = Field(None, description="Column of a table that holds the label.")


ROLES = ("train", "validation", "calibration", "test", "ood_validation")
"""The keys of ``data:`` that hold one reference each."""


class StageEntry(Options):
    """One stage of a recipe, resolved."""

    stage: str = Field(description="Name in the registry of stages.")
    name: str = Field(pattern=NAME_PATTERN, description="Name of this step and of its folder (default: the stage's).")
    options: SerializeAsAny[Options] = Field(description="The stage's own options.")

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED_STAGE_NAMES:
            raise ValueError(f"{name!r} is a section of every recipe; choose another name")
        return name


def reference_as_mapping(value: object) -> object:
    """``model: timm:vit_base`` is short for ``model: {adapter: timm, name: vit_base}``."""
    if not isinstance(value, str):
        return value
    scheme = scheme_of(value)
    return {"adapter": scheme, "name": value[len(scheme) + 1 :]} if scheme else {"name": value}


class Recipe(Options):
    """A model, data, and the stages that run on them one after the other."""

    model: Annotated[RecipeModel, BeforeValidator(reference_as_mapping)] = Field(
        description="A reference such as timm:NAME or an artifact's path, or a mapping."
    )
    data: DataSources = Field(default_factory=DataSources, description="What is learned from, chosen by and tested on.")
    seed: int = Field(0, ge=0, description="Seed of every stage that does not set its own.")
    runtime: Runtime = Field(default_factory=Runtime, description="Device, number format and batch size.")
    stages: tuple[StageEntry, ...] = Field((), description="The stages, in order.")

    def folder_names(self) -> tuple[str, ...]:
        """The folder of each stage within the output folder: ``01-prune``, ``02-fuse``, ..."""
        return tuple(f"{number:02d}-{entry.name}" for number, entry in enumerate(self.stages, start=1))

    def to_plain(self) -> dict[str, Any]:
        """The resolved recipe as it would be written in YAML."""
        plain = self.model_dump(mode="json", exclude={"stages"}, exclude_none=True)
        plain["stages"] = [
            {entry.stage: {"name": entry.name, **entry.options.model_dump(mode="json", exclude_none=True)}}
            for entry in self.stages
        ]
        return plain

    def to_yaml(self) -> str:
        """The recipe with every default and every change written out, as YAML."""
        return yaml.safe_dump(self.to_plain(), allow_unicode=True, sort_keys=False)


SECTIONS: Mapping[str, type[Options]] = {"model": RecipeModel, "data": DataSources, "runtime": Runtime}
"""The sections of a recipe that are mappings of their own."""
