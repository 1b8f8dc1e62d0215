"""The JSON Schema of recipes, by which editors complete keys and underline mistakes while one types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from compress.options import Options
from compress.recipe.hints import STAGE_NAME_KEY
from compress.recipe.schema import NAME_PATTERN, SECTIONS, Recipe
from compress.recipe.stages import STAGES
from compress.recipe.stages.base import Stage
from compress.registry import Registry

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCE = "#/$defs/{model}"
Schema = dict[str, Any]


def recipe_json_schema(stages: Registry[type[Stage[Any]]] = STAGES) -> Schema:
    """The schema as JSON values: draft 2020-12, the same for the same package.

    Numbers in quotes, which ``read_recipe`` takes for numbers, are no numbers to it. What several keys must be
    together, and whether files exist, is left to ``compress validate``.

    Args:
        stages: the stages that exist.
    """
    options: list[type[BaseModel]] = [*SECTIONS.values(), *(stages[name].options for name in stages)]
    by_model, definitions = models_json_schema([(model, "validation") for model in options], ref_template=_REFERENCE)

    def reference(schema: type[Options]) -> Schema:
        return dict(by_model[schema, "validation"])

    described = {name: field.description for name, field in Recipe.model_fields.items()}
    properties: Schema = {
        "model": {"anyOf": [{"type": "string", "minLength": 1}, reference(SECTIONS["model"])]},
        "data": reference(SECTIONS["data"]),
        "seed": {"type": "integer", "minimum": 0, "default": 0},
        "runtime": reference(SECTIONS["runtime"]),
        "stages": {
            "type": "array",
            "minItems": 1,
            "items": _item({name: reference(stages[name].options) for name in stages}, definitions["$defs"]),
        },
    }
    return {
        "$schema": DIALECT,
        "title": "compress recipe",
        "type": "object",
        "properties": {name: {**schema, "description": described[name]} for name, schema in properties.items()},
        "required": ["model", "stages"],
        "additionalProperties": False,
        "$defs": definitions["$defs"],
    }


def _item(options: Mapping[str, Schema], definitions: Schema) -> Schema:
    """An item of ``stages``: a stage's name alone, or the name and its keys, to which the step's own name is added."""
    keys, alone = Schema(), []
    for stage, reference in options.items():
        definition = definitions[reference["$ref"].rpartition("/")[2]]
        own_name = {"type": "string", "pattern": NAME_PATTERN, "description": "Name of this step and of its folder."}
        definition["properties"].setdefault(STAGE_NAME_KEY, own_name)
        keys[stage] = {"anyOf": [reference, {"type": "null"}]}
        if not definition.get("required"):
            alone.append(stage)
    mapping = {
        "type": "object",
        "properties": keys,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {"anyOf": [{"enum": alone}, mapping]}
