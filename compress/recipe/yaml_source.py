"""Read a YAML file from a stranger: plain values, the place of every value, and none of YAML 1.1's surprises.

Built on PyYAML's composer with its implicit types replaced. A plain scalar is null, true/false, a decimal integer or a
decimal float (``1e-4`` included); everything else is text. So ``12:30``, ``yes``, ``010``, ``1_000`` and dates stay
text, and it is the schema that decides whether such a text can be the number or the switch it asks for.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from compress.errors import RecipeError

MAX_BYTES = 128 * 1024
MAX_DEPTH = 16
MAX_VALUES = 10_000

KeyPath = tuple[str | int, ...]

_NULL, _BOOL, _INT, _FLOAT, _STR, _SEQ, _MAP = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")
)
_MERGE = "<<"


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader with the implicit types of YAML 1.2's core schema, without octal and hexadecimal numbers."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - PyYAML's own way to drop the inherited types


_PlainLoader.add_implicit_resolver(_NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_PlainLoader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_PlainLoader.add_implicit_resolver(_INT, re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_PlainLoader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"^(?:[-+]?(?:0|[1-9][0-9]*)?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?(?:0|[1-9][0-9]*)\.?[eE][-+]?[0-9]+"
        r"|[-+]?(?:0|[1-9][0-9]*)\."
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


@dataclass
class Source:
    """Plain values and where each was written.

    Attributes:
        name: what messages call the source: a file's path, or ``--set prune.keep=4``.
        value: the values: dict, list, str, int, float, bool or None.
        places: path of a value (``("stages", 0, "prune", "keep")``) -> ``file:line``.
    """

    name: str
    value: Any
    places: dict[KeyPath, str] = field(default_factory=dict)

    def where(self, path: KeyPath) -> str:
        """The place of the value at ``path``, or of the nearest value that contains it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, self.name)


def read_yaml(path: Path) -> Source:
    """Read a YAML file; raises ``RecipeError`` with ``file:line`` for whatever is wrong with it."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecipeError(f"the recipe cannot be read ({reason})", where=str(path), fix="check the path") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise RecipeError("the text is not UTF-8", where=f"{path}:{line}", fix="save the file as UTF-8") from None
    return parse_yaml(text, name=str(path))


def parse_yaml(text: str, *, name: str, numbered: bool = True) -> Source:
    """Parse YAML text.

    Args:
        text: the text, at most ``MAX_BYTES`` long.
        name: what messages call the source.
        numbered: whether places carry line numbers (not for a one-line ``--set``).

    Raises:
        RecipeError: syntax errors, duplicate keys, keys that are not text, tags, several documents, infinite or
            undefined numbers, and texts beyond the limits on size, depth and number of values (aliases expanded).
    """
    if len(text) > MAX_BYTES:
        raise RecipeError(
            f"the recipe is larger than {MAX_BYTES // 1024} KiB", where=name, fix="keep data and labels in other files"
        )
    reader = _Reader(name, numbered)
    try:
        reader.check_limits(text)
        node = yaml.compose(text, Loader=_PlainLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join((error.problem or error.context or "broken syntax").split())
        where = reader.at(mark.line) if mark else name
        raise RecipeError(f"not valid YAML: {problem}", where=where, fix=_syntax_fix(problem)) from None
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n")
        raise RecipeError(
            "the text has a control character", where=reader.at(line), fix="remove it or save as plain text"
        ) from None
    value = None if node is None else reader.build(node, ())
    return Source(name, value, reader.places)


def _syntax_fix(problem: str) -> str:
    if "\\t" in problem:
        return "indent with spaces, not tabs"
    if "document" in problem:
        return "keep one document; '---' starts another"
    if "alias" in problem:
        return "define the anchor before its first use"
    return "check the indentation, colons, brackets and quotes around this line"


class _Reader:
    """One pass over a text: limits first, then values and places."""

    def __init__(self, name: str, numbered: bool) -> None:
        self.name = name
        self.numbered = numbered
        self.places: dict[KeyPath, str] = {}
        self.count = 0

    def at(self, line: int) -> str:
        """The place of a 0-based line."""
        return f"{self.name}:{line + 1}" if self.numbered else self.name

    def check_limits(self, text: str) -> None:
        """Walk the events, which need no recursion, so that depth is known before anything recurses."""
        depth = 0
        for count, event in enumerate(yaml.parse(text, Loader=_PlainLoader), start=1):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > MAX_DEPTH:
                self._refuse_bomb(event.start_mark, f"values are nested deeper than {MAX_DEPTH} levels")
            if count > MAX_VALUES:
                self._refuse_bomb(event.start_mark, f"there are more than {MAX_VALUES} values")

    def _refuse_bomb(self, mark: Any, what: str) -> None:
        where = self.at(mark.line) if mark else self.name
        raise RecipeError(what, where=where, fix="shorten the recipe; aliases count once per use")

    def build(self, node: yaml.Node, path: KeyPath) -> Any:
        """The value of a node. An alias is built again at each use, and counted each time."""
        self.count += 1
        if self.count > MAX_VALUES:
            self._refuse_bomb(node.start_mark, f"there are more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            self._refuse_bomb(node.start_mark, f"values are nested deeper than {MAX_DEPTH} levels")
        self.places.setdefault(path, self.at(node.start_mark.line))
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        raise self._bad_tag(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line
            key = self._key(key_node)
            if key in values:
                raise RecipeError(
                    f"key {key!r} is given twice (first on line {lines[key] + 1})",
                    where=self.at(line),
                    fix="remove one of the two",
                )
            lines[key] = line
            inner = (*path, key)
            self.places[inner] = self.at(line)
            values[key] = self.build(value_node, inner)
        return values

    def _key(self, node: yaml.Node) -> str:
        where = self.at(node.start_mark.line)
        if not isinstance(node, yaml.ScalarNode) or node.tag != _STR:
            shown = f"{node.value!r} " if isinstance(node, yaml.ScalarNode) else ""
            raise RecipeError(f"the key {shown}is not a name", where=where, fix="put the key in quotes")
        if node.value == _MERGE:
            raise RecipeError("merge keys ('<<') are not supported", where=where, fix="write the keys out")
        return self._text(node)

    def _text(self, node: yaml.ScalarNode) -> str:
        """The text, which must be one that can be written to a file again."""
        text = str(node.value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise RecipeError(
                "half a character (a lone surrogate) is no text",
                where=self.at(node.start_mark.line),
                fix="write the character itself",
            ) from None
        return text

    def _scalar(self, node: yaml.ScalarNode) -> str | int | float | bool | None:
        text = self._text(node)
        try:
            if node.tag == _STR:
                return text
            if node.tag == _NULL:
                return None
            if node.tag == _BOOL:
                return text.lower() == "true"
            if node.tag == _INT:
                return int(text)
            if node.tag == _FLOAT:
                return self._finite(text, node.start_mark.line)
        except ValueError:
            raise RecipeError(
                f"{text[:40]!r} is not the number it claims to be",
                where=self.at(node.start_mark.line),
                fix="write a decimal number",
            ) from None
        raise self._bad_tag(node)

    def _finite(self, text: str, line: int) -> float:
        special = text.lower().lstrip("+-")
        number = float(special.lstrip(".")) if special in (".nan", ".inf") else float(text)
        if not math.isfinite(number):
            raise RecipeError(f"{text!r} is not a finite number", where=self.at(line), fix="write a finite number")
        return number

    def _bad_tag(self, node: yaml.Node) -> RecipeError:
        return RecipeError(
            f"the tag {str(node.tag)!r} is not allowed",
            where=self.at(node.start_mark.line),
            fix="write a plain value without a '!' tag",
        )
