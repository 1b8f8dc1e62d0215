"""Gates: conditions under which an evaluation fails, such as ``cal/ece > 0.05``.

::

    gate  = [ MODEL ":" ] METRIC OPERATOR limit
    limit = NUMBER | MODEL | MODEL ("+" | "-" | "*") NUMBER      with OPERATOR one of  <  <=  >  >=

Without ``MODEL:`` a gate holds for every model of the call that is no baseline. A limit that names a model is that
model's value of the same metric; the model itself is then not tested.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field, FiniteFloat

from compress.errors import UsageError
from compress.options import Options
from compress.registry import nearest

if TYPE_CHECKING:
    from compress.evaluation.result import ModelResult

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CHANGES: dict[str, Callable[[float, float], float]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_SYNTAX = 'write METRIC < NUMBER or METRIC < MODEL - NUMBER, as in "cal/ece > 0.05" or "cls/accuracy < single - 0.01"'


@dataclass(frozen=True)
class Limit:
    """The right side of a gate: a number, or another model's value changed by a number."""

    number: float = 0.0
    model: str | None = None
    change: str = "+"

    def __str__(self) -> str:
        if self.model is None:
            return f"{self.number:g}"
        return self.model if self.change == "+" and not self.number else f"{self.model} {self.change} {self.number:g}"


@dataclass(frozen=True)
class Gate:
    """One parsed gate; ``subject`` is the one model it tests, or ``None`` for all that are no baseline."""

    text: str
    metric: str
    comparison: str
    limit: Limit
    subject: str | None = None


class FailedGate(Options):
    """One gate that failed for one model."""

    gate: str = Field(description="The gate as written.")
    model: str = Field(description="The model that failed it.")
    value: FiniteFloat | None = Field(description="The model's value; null when it has none.")
    limit: FiniteFloat | None = Field(description="The number it was compared with; null when there is none.")
    message: str = Field(description="One line for the user.")


class PassedGate(Options):
    """One gate that one model passed."""

    gate: str = Field(description="The gate as written.")
    model: str = Field(description="The model that passed it.")


def parse_gates(texts: Iterable[str], *, metrics: Collection[str], models: Collection[str]) -> tuple[Gate, ...]:
    """Parse gates before anything is computed.

    Args:
        texts: the gates as written.
        metrics: names of all metrics of the call (``catalogue``).
        models: names of all models of the call.

    Raises:
        UsageError: broken syntax, an unknown metric (with the nearest name) or an unknown model.
    """
    return tuple(_parse(text, metrics, models) for text in texts)


def check_gates(gates: Iterable[Gate], models: Sequence[ModelResult]) -> tuple[FailedGate, ...]:
    """The gates that failed, one entry per gate and model, in order.

    A gate whose metric, or whose limit, has no value fails: what was not measured is not known to be good.
    """
    by_name = {model.name: model for model in models}
    failures = []
    for gate in gates:
        reference = None if gate.limit.model is None else by_name[gate.limit.model]
        others = _tested(gate, models)
        if reference is not None and not others:
            failures.append(_failure(gate, reference, None, None, "there is no other model to compare with"))
        failures.extend(failure for model in others if (failure := _test(gate, model, reference)) is not None)
    return tuple(failures)


def passed_gates(
    gates: Iterable[Gate], models: Sequence[ModelResult], failed: Iterable[FailedGate]
) -> tuple[PassedGate, ...]:
    """The gates that ``check_gates`` found nothing wrong with, one entry per gate and model, in order."""
    wrong = {(failure.gate, failure.model) for failure in failed}
    return tuple(
        PassedGate(gate=gate.text, model=model.name)
        for gate in gates
        for model in _tested(gate, models)
        if (gate.text, model.name) not in wrong
    )


def _tested(gate: Gate, models: Sequence[ModelResult]) -> list[ModelResult]:
    """The models that a gate is about: its own, or all that are no baseline, without the one it compares with."""
    if gate.subject is not None:
        tested = [model for model in models if model.name == gate.subject]
    else:
        tested = [model for model in models if not model.baseline] or list(models)
    return [model for model in tested if model.name != gate.limit.model]


def _parse(text: str, metrics: Collection[str], models: Collection[str]) -> Gate:
    where = f"--fail-if {text!r}"
    sides = re.split(r"(<=|>=|<|>)", text)
    if len(sides) != 3 or not sides[0].strip() or not sides[2].strip():
        raise UsageError("not a gate", where=where, fix=_SYNTAX)
    metric, comparison, right = (side.strip() for side in sides)
    subject = None
    if metric not in metrics and ":" in metric:
        subject, metric = (part.strip() for part in metric.rsplit(":", 1))
        if subject not in models:
            raise UsageError(f"no model {subject!r} in this call", where=where, fix=nearest(subject, models))
    if metric not in metrics:
        raise UsageError(f"unknown metric {metric!r}", where=where, fix=metric_hint(metric, metrics))
    limit = _parse_limit(right, models, where)
    if subject is not None and subject == limit.model:
        raise UsageError(f"compares {subject!r} with itself", where=where, fix="name another model")
    return Gate(text.strip(), metric, comparison, limit, subject)


def metric_hint(name: str, metrics: Collection[str]) -> str:
    """What to do about an unknown metric: give the foreign set that it is of, or correct its name."""
    parts = name.split("/")
    if parts[0] == "ood" and len(parts) > 2 and not any(known.startswith("ood/") for known in metrics):
        return f"pass --ood {parts[1]}=DATA, or name it under data.ood in a recipe"
    return nearest(name, metrics)


def _parse_limit(text: str, models: Collection[str], where: str) -> Limit:
    number = _number(text)
    if number is not None:
        return Limit(number)
    # Longest first: a model may be named like the beginning of another.
    for model in sorted(models, key=len, reverse=True):
        rest = text.removeprefix(model).strip()
        if text == model:
            return Limit(model=model)
        if text.startswith(model) and rest[:1] in _CHANGES and (number := _number(rest[1:].strip())) is not None:
            return Limit(number, model, rest[0])
    name = re.split(r"\s*[-+*/%]\s*(?=[\d.])", text)[0]
    if name in models:
        raise UsageError(f"{text!r} is not a limit", where=where, fix=_SYNTAX)
    raise UsageError(f"{text!r} is neither a number nor a model of this call", where=where, fix=nearest(name, models))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _test(gate: Gate, model: ModelResult, reference: ModelResult | None) -> FailedGate | None:
    limit: float | None = gate.limit.number
    if reference is not None:
        base, reason = reference.value(gate.metric)
        limit = None if base is None else _CHANGES[gate.limit.change](base, gate.limit.number)
        if limit is None:
            return _failure(gate, model, None, None, f"{gate.metric} of {reference.name} has no value ({reason})")
    value, reason = model.value(gate.metric)
    if value is None or limit is None:
        return _failure(gate, model, None, limit, f"{gate.metric} has no value ({reason})")
    if not _COMPARISONS[gate.comparison](value, limit):
        return None
    shown = f"{gate.limit} = {limit:.6g}" if reference is not None else str(gate.limit)
    return _failure(gate, model, value, limit, f"{gate.metric} = {value:.6g} {gate.comparison} {shown}")


def _failure(gate: Gate, model: ModelResult, value: float | None, limit: float | None, what: str) -> FailedGate:
    message = f'gate "{gate.text}" failed for {model.name}: {what}'
    return FailedGate(gate=gate.text, model=model.name, value=value, limit=limit, message=message)
