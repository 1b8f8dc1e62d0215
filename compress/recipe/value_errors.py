"""Pydantic's findings in one family of words, for recipes and for command options."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from compress.registry import nearest

UNKNOWN_KEY = "extra_forbidden"
MISSING_KEY = "missing"


def describe_value(errors: Iterable[ErrorDetails]) -> str:
    """What is wrong with one value; the branches of a union are joined with "or".

    Returns a phrase that continues a sentence: ``is 1.5 but must be ...``.
    """
    found = list(errors)
    phrases = list(dict.fromkeys(_phrase(error) for error in found))
    return f"is {_shown(found[0]['input'])} but {', or '.join(phrases)}"


def own_words(errors: Iterable[ErrorDetails]) -> str | None:
    """The sentence of a check of ours over a list, a mapping or several keys together, which needs no value named."""
    first = next(iter(errors))
    if first["type"] != "value_error" or not (isinstance(first["input"], (dict, list, tuple)) or not first["loc"]):
        return None
    return first["msg"].removeprefix("Value error, ")


def suggestion(error: ErrorDetails, schema: type[BaseModel] | None, key: str) -> str | None:
    """How to mend a value: the nearest choice, or what the key is for."""
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        expected = str(error.get("ctx", {}).get("expected", ""))
        choices = [part.strip(" '") for part in expected.replace(" or ", ", ").split(",")]
        return nearest(error["input"], choices)
    field = schema.model_fields.get(key) if schema else None
    if field is None or not field.description:
        return None
    return f"it means: {field.description.rstrip('.')}"


def _phrase(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_type" and not isinstance(error["input"], (dict, list, type(None))):
        return "must be text; put it in quotes"
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        return "must be a mapping of keys to values"
    if error["type"] in ("tuple_type", "list_type"):
        return "must be a list"
    for opening in ("Input should be", "String should", "Value should", "Tuple should", "Input should"):
        if message.startswith(opening):
            verb = "must be" if opening.endswith("be") else "must"
            return f"{verb}{message[len(opening) :]}"
    return message[:1].lower() + message[1:]


def _shown(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
