"""The figures of the page: what every model of every seed measured, and what that says over the seeds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from families import Family
from scipy.stats import t
from steps import SHIFT, TEST, TIME, Place, cores, eval_command, records, run_command

from compress.evaluation.result import EvaluationResult

ACCURACY, NLL, ECE, DISAGREEMENT = "cls/accuracy", "cls/nll", "cal/ece", "div/disagreement"
PARAMETERS, FLOPS, LATENCY = "cost/params", "cost/flops", "cost/latency_ms"
SHIFTED_ACCURACY, SHIFTED_ECE = "shifted accuracy", "shifted ECE"
LEVEL, ROUNDING = 0.95, 1e-12
PLACEHOLDER = Place("DATA", Path("runs/results"))


@dataclass(frozen=True)
class Estimate:
    """A figure over seeds.

    Attributes:
        mean: of the seeds.
        half_width: of Student's 95 % interval of the mean; None for one seed, or for a figure that is the same in all.
    """

    mean: float
    half_width: float | None

    def differs_from(self, limit: float) -> bool:
        """Whether the interval leaves ``limit`` out; False without an interval."""
        return self.half_width is not None and abs(self.mean - limit) > self.half_width


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and Student's interval, over at least one seed."""
    found = np.asarray(values, dtype=np.float64)
    spread = float(found.std(ddof=1)) if len(found) > 1 else 0.0
    if spread <= ROUNDING * abs(found.mean()):
        return Estimate(float(found.mean()), None)
    half_width = float(t.ppf((1 + LEVEL) / 2, len(found) - 1)) * spread / len(found) ** 0.5
    return Estimate(float(found.mean()), half_width)


def auroc(foreign: str) -> str:
    """Name of the metric."""
    return f"ood/{foreign}/auroc"


def fpr95(foreign: str) -> str:
    """Name of the metric."""
    return f"ood/{foreign}/fpr95"


def collect(place: Place, family: Family, seeds: Sequence[int], jobs: int) -> dict[str, Any]:
    """The figures of a family as JSON values: by seed, row and metric, with where and for how long it was measured."""
    wanted = [ACCURACY, NLL, ECE, DISAGREEMENT, PARAMETERS, FLOPS]
    wanted += [name(foreign) for foreign in family.foreign for name in (auroc, fpr95)]
    by_seed: dict[str, Any] = {}
    where: dict[str, Any] = {}
    for seed in seeds:
        test, shift, time = (_read(place, family, seed, what) for what in (TEST, SHIFT, TIME))
        where = time.environment.model_dump(mode="json")
        moved = dict(zip((SHIFTED_ACCURACY, SHIFTED_ECE), family.shifted[1:], strict=True))
        by_seed[str(seed)] = {
            row.name: {
                **{metric: test.value(row.key, metric) for metric in wanted},
                **{name: shift.value(row.key, metric) for name, metric in moved.items()},
                LATENCY: time.value(row.key, LATENCY),
            }
            for row in family.rows
        }
    return {"environment": where, "jobs": jobs, "cores": cores(), "hours": _hours(place, family), "seeds": by_seed}


def _hours(place: Place, family: Family) -> float:
    """Of all commands of a family: of each the longest call, since later ones find most of the work done."""
    longest: dict[str, float] = {}
    for line in records(place):
        if str(place.work / family.name) + "/" in line["command"]:
            longest[line["command"]] = max(line["seconds"], longest.get(line["command"], 0.0))
    return round(sum(longest.values()) / 3600, 2)


def _read(place: Place, family: Family, seed: int, what: str) -> EvaluationResult:
    return EvaluationResult.from_json(place.result(family, seed, what).read_text(encoding="utf-8"))


class Figures:
    """One family's figures over its seeds.

    Args:
        family: what was compared.
        content: what ``collect`` gave.
    """

    def __init__(self, family: Family, content: Mapping[str, Any]) -> None:
        self.family = family
        self.environment: Mapping[str, Any] = content["environment"]
        self.hours, self.jobs, self.cores = content["hours"], content["jobs"], content["cores"]
        self.seeds: Mapping[str, Mapping[str, Mapping[str, float | None]]] = content["seeds"]

    def values(self, row: str, metric: str) -> list[float]:
        """One per seed; none where a model has no such figure."""
        found = [models[row].get(metric) for models in self.seeds.values()]
        return [value for value in found if value is not None]

    def of(self, row: str, metric: str) -> Estimate | None:
        """The figure of a row."""
        values = self.values(row, metric)
        return estimate(values) if values else None

    def difference(self, row: str, other: str, metric: str) -> Estimate:
        """Paired by seed: ``row`` less ``other``."""
        return estimate([own - its for own, its in self.pairs(row, other, metric)])

    def ratio(self, row: str, other: str, metric: str) -> Estimate:
        """Paired by seed: ``row`` over ``other``."""
        return estimate([own / its for own, its in self.pairs(row, other, metric)])

    def pairs(self, row: str, other: str, metric: str) -> list[tuple[float, float]]:
        """The figures of two rows, one pair per seed that has both."""
        both = [(models[row].get(metric), models[other].get(metric)) for models in self.seeds.values()]
        return [(own, its) for own, its in both if own is not None and its is not None]


def commands(family: Family) -> list[str]:
    """The commands that make the figures of seed S, of this family, with DATA for the folder of data."""

    runs = [run_command(PLACEHOLDER, family, "S", recipe, "MINILM") for recipe in family.recipes]
    measurements = [eval_command(PLACEHOLDER, family, "S", what) for what in (TEST, SHIFT, TIME)]
    return [shlex.join(command) for command in (*runs, *measurements)]


def read_figures(path: Path) -> dict[str, Any]:
    """By name of the family; empty before the first measurement."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
