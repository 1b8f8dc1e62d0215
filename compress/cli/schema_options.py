"""Command options made from a frozen schema: one option per field, its description as help."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import annotated_types
import click
from click.core import ParameterSource
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from compress.cli.help_pages import section_option
from compress.errors import UsageError
from compress.options import Options
from compress.recipe.value_errors import describe_value, own_words, suggestion

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Options)


class CountOrFraction(click.ParamType):
    """``4`` is a count, ``0.33`` and ``1.0`` are fractions."""

    name = "count|fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        """An int when the text is one, else a float."""
        if isinstance(value, (int, float)):
            return value
        try:
            return int(value)
        except ValueError:
            pass
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is neither a count (4) nor a fraction (0.33)", param, ctx)
        return number


class CountOrWord(click.ParamType):
    """A count, or one of a few words.

    Args:
        smallest: the lowest count.
        words: the words.
    """

    def __init__(self, smallest: int, words: Collection[str]) -> None:
        self._smallest, self._words = smallest, words
        self.name = "|".join(["n", *words])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """An int when the text is one, else the word."""
        if isinstance(value, int) or value in self._words:
            return value
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or number < self._smallest:
            words = " nor ".join(self._words)
            self.fail(f"{value!r} is neither a number from {self._smallest} on nor {words}", param, ctx)
        return number


def schema_options(
    schema: type[Options], section: str, *, skip: Collection[str] = (), defaults: bool = True
) -> Callable[[F], F]:
    """A decorator that adds an option for every field of ``schema``.

    Args:
        schema: the schema; its fields are ``bool``, ``int``, ``float``, ``str``, ``Path``, ``Literal``,
            ``int | float``, ``int | Literal``, tuples of these (repeatable options), or one of these or None.
        section: heading on the help page.
        skip: fields without an option.
        defaults: whether options have the schema's defaults; without, an option that is not given is None.

    Raises:
        TypeError: a field's type has no option.
    """

    def decorate(command: F) -> F:
        for name, field in reversed(schema.model_fields.items()):
            if name not in skip:
                command = _option(name, field, section, defaults)(command)
        return command

    return decorate


def read_options(schema: type[S], given: Mapping[str, Any], *, base: S | None = None) -> S:
    """Build ``schema`` from a command's parameters.

    Args:
        schema: the schema.
        given: the parameters by name; other names and None are ignored.
        base: where values come from that were not given.

    Raises:
        UsageError: a value is not allowed; names the option.
    """
    values = base.model_dump() if base is not None else {}
    values |= {name: given[name] for name in schema.model_fields if given.get(name) is not None}
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]["loc"][:1]
        details = [detail for detail in error.errors(include_url=False) if detail["loc"][:1] == first]
        what = own_words(details) or f"the value {describe_value(details)}"
        if not first:  # options that do not go together
            raise UsageError(what) from None
        name = str(first[0])
        raise UsageError(what, where=option_name(name), fix=suggestion(details[0], schema, name)) from None


def refuse_together(*names: str) -> None:
    """Raise ``UsageError`` when all these parameters of the running command were given on its line."""
    context = click.get_current_context()
    if all(context.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names):
        options = " and ".join(map(option_name, names))
        raise UsageError(f"{options} do not go together", fix="give one of them")


def option_name(field: str) -> str:
    """``--max-overlap`` for ``max_overlap``."""
    return f"--{field.replace('_', '-')}"


def _option(name: str, field: FieldInfo, section: str, defaults: bool) -> Callable[[F], F]:
    inner, metadata = _without_none(field.annotation), list(field.metadata)
    default = field.default if defaults else None
    flag = option_name(name)
    attributes: dict[str, Any] = {"help": field.description}
    if inner is bool:
        flag = f"{flag}/--no-{name.replace('_', '-')}"
        attributes |= {"default": default, "show_default": default is True}
    elif get_origin(inner) is tuple:
        typed = _typed(get_args(inner)[0], metadata, name)
        attributes |= typed | {"multiple": True, "default": default, "show_default": bool(default)}
        if not defaults:
            attributes["callback"] = lambda context, parameter, value: value or None
    else:
        attributes |= _typed(inner, metadata, name) | {"default": default, "show_default": default is not None}
    return section_option(section, flag, name, **attributes)


def _typed(annotation: Any, metadata: list[Any], name: str) -> dict[str, Any]:
    """The option's type and what stands for its value on the help page."""
    if get_origin(annotation) is Annotated:
        annotation, *inner = get_args(annotation)
        metadata = [part for item in inner for part in (item.metadata if isinstance(item, FieldInfo) else [item])]
    if get_origin(annotation) is Literal:
        return {"type": click.Choice([str(choice) for choice in get_args(annotation)])}
    parts = get_args(annotation) if _is_union(annotation) else (annotation,)
    members = {_bare(member) for member in parts}
    if members == {int, float}:
        return {"type": CountOrFraction()}
    words = [word for member in parts if get_origin(member) is Literal for word in get_args(member)]
    if words and {member for member in members if get_origin(member) is not Literal} == {int}:
        return {"type": CountOrWord(_lowest(parts), words)}
    if annotation is int:
        return {"type": _ranged(click.IntRange, click.INT, metadata), "metavar": "N"}
    if annotation is float:
        return {"type": _ranged(click.FloatRange, click.FLOAT, metadata), "metavar": "X"}
    if annotation is Path:
        return {"type": click.Path(path_type=Path), "metavar": "PATH"}
    if annotation is str:
        return {"type": click.STRING}
    raise TypeError(f"field {name!r}: there is no command option for {annotation}")


def _lowest(parts: Iterable[Any]) -> int:
    """The lower bound among the parts of a union; 0 without one."""
    details = (detail for part in parts if get_origin(part) is Annotated for detail in get_args(part)[1:])
    fields = (inner for detail in details for inner in (detail.metadata if isinstance(detail, FieldInfo) else [detail]))
    return next(
        (bound.ge for bound in fields if isinstance(bound, annotated_types.Ge) and isinstance(bound.ge, int)), 0
    )


def _ranged(range_type: Any, plain: click.ParamType, metadata: list[Any]) -> click.ParamType:
    """The type with the field's bounds, which the help page shows."""
    bounds: dict[str, Any] = {}
    for bound in metadata:
        if isinstance(bound, annotated_types.Ge):
            bounds["min"] = bound.ge
        elif isinstance(bound, annotated_types.Gt):
            bounds |= {"min": bound.gt, "min_open": True}
        elif isinstance(bound, annotated_types.Le):
            bounds["max"] = bound.le
        elif isinstance(bound, annotated_types.Lt):
            bounds |= {"max": bound.lt, "max_open": True}
    return range_type(**bounds) if bounds else plain


def _without_none(annotation: Any) -> Any:
    if not _is_union(annotation):
        return annotation
    members = [member for member in get_args(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else Union[tuple(members)]  # noqa: UP007 - built at run time


def _bare(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType)
