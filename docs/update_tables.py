"""Rewrite the tables in these pages from the schemas that they describe: ``python docs/update_tables.py``.

A table stands between ``<!-- table: module:Schema -->`` and ``<!-- end -->``; with ``tree`` in the place of ``table``
the schemas that it refers to follow below it. ``<!-- metrics -->`` is the list of metrics, and ``<!-- file: PATH -->``
shows a file of this folder.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from compress.evaluation.metrics.registry import catalogue

DOCS = Path(__file__).parent
BLOCK = re.compile(r"(<!-- (table|tree|metrics|file)(?:: ([\w./-]+)(?::(\w+))?)? -->\n).*?(<!-- end -->)", re.DOTALL)
LANGUAGES = {".py": "python", ".sh": "sh", ".yml": "yaml"}
HEADER = ["| key | value | default | meaning |", "|---|---|---|---|"]


def updated(page: str) -> str:
    """The text of a page with its tables made anew."""

    def renew(match: re.Match[str]) -> str:
        opening, kind, module, name, closing = match.groups()
        if kind == "metrics":
            lines = list(_metrics())
        elif kind == "file":
            lines = list(_file(DOCS / module))
        else:
            schema: type[BaseModel] = getattr(importlib.import_module(module), name)
            lines = list(_tree(schema) if kind == "tree" else _table(schema.model_json_schema()))
        return "\n".join([opening.rstrip(), *lines, closing])

    return BLOCK.sub(renew, page)


def _tree(schema: type[BaseModel]) -> Iterator[str]:
    """The table of a schema and, each under its name, those of the schemas inside."""
    whole = schema.model_json_schema(mode="serialization", by_alias=True)
    yield from _table(whole)
    for name, inner in whole.get("$defs", {}).items():
        if "properties" in inner:
            yield from ("", f"**{name}** – {_one_line(inner.get('description', ''))}", "", *_table(inner))


def _table(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from HEADER
    for name, field in schema.get("properties", {}).items():
        cells = (f"`{name}`", _value(field), _default(name, field, schema), _one_line(field.get("description", "")))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _value(field: Mapping[str, Any]) -> str:
    """What a field may hold, in words."""
    if "$ref" in field:
        return f"*{field['$ref'].rpartition('/')[2]}*"
    if "anyOf" in field or "oneOf" in field:
        return " or ".join(dict.fromkeys(_value(option) for option in field.get("anyOf") or field["oneOf"]))
    if "const" in field or "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        fixed = field.get("prefixItems", [])
        return f"list of {len(fixed)} × {_value(fixed[0])}" if fixed else f"list of {_value(field['items'])}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties")
        return f"{_value(inner)} by name" if isinstance(inner, Mapping) else "mapping"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
    return f"{words.get(field.get('type', ''), 'any')} {', '.join(_bounds(field))}".rstrip()


def _bounds(field: Mapping[str, Any]) -> Iterator[str]:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    yield from (f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field)


def _default(name: str, field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "default" not in field:
        return "*required*" if name in schema.get("required", ()) and "const" not in field else ""
    default = json.dumps(field["default"], ensure_ascii=False)
    return f"`{default}`" if len(default) <= 40 else ""


def _metrics() -> Iterator[str]:
    yield from ("| name | better | unit | meaning |", "|---|---|---|---|")
    for metric in catalogue(["NAME"], ["CORRUPTION"]).values():
        if metric.score in ("", "max_probability"):
            yield f"| `{metric.name}` | {metric.better} | {metric.unit} | {metric.description} |"


def _file(path: Path) -> Iterator[str]:
    yield from (f"```{LANGUAGES[path.suffix]}", *path.read_text(encoding="utf-8").splitlines(), "```")


def _one_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
