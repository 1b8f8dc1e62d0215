"""A point of a sweep as a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from compress.artifact.durable import write_bytes
from compress.errors import UsageError
from compress.pruning.options import Prune
from compress.references import WEIGHT_SUFFIXES, absolute, scheme_of
from compress.registry import nearest
from compress.runtime import Runtime
from compress.sweeping.grid import Grid

HEADER = """\
# The point {point} of a sweep. Prunes, fuses and evaluates: compress run {name}
# data.test is the set that the sweep was compared on; for a final figure put a set here that no choice has seen.
"""


@dataclass(frozen=True)
class SweepSources:
    """Where a sweep's model and data came from, as the user named them.

    Attributes:
        model: a reference.
        details: further fields of ``ModelSource`` (``weights``, ``labels``, ...).
        calibration, validation, ood_validation: references to data.
        ood: references by name.
        text_column, label_column: columns of tables.
    """

    model: str
    calibration: str | None
    details: Mapping[str, Any] = field(default_factory=dict)
    validation: str | None = None
    ood: Mapping[str, str] = field(default_factory=dict)
    ood_validation: str | None = None
    text_column: str | None = None
    label_column: str | None = None


def point_options(grid: Grid, options: Prune, name: str) -> Prune:
    """The options of one point; raises ``UsageError`` for a name that is not in the grid."""
    points = dict(grid.points(options))
    if name not in points:
        raise UsageError(f"the sweep has no point {name!r}", where="--write-recipe", fix=nearest(name, points))
    return points[name]


def write_recipe(file: Path, point: str, options: Prune, sources: SweepSources, runtime: Runtime) -> None:
    """Write a recipe that makes the point's model again; paths in it are absolute.

    Args:
        file: the YAML file; replaced if it is there.
        point: name of the point.
        options: of the point.
        sources: the model and the data.
        runtime: device, number format, batch size.

    Raises:
        ArtifactError: the file cannot be written.
    """
    adapter = scheme_of(sources.model)
    model: dict[str, Any] = {"name": sources.model if adapter is None else sources.model.removeprefix(f"{adapter}:")}
    model = {"adapter": adapter, **model} if adapter else {"name": _absolute(sources.model)}
    for key, value in sources.details.items():
        model[key] = _absolute(value) if key == "weights" and str(value).endswith(WEIGHT_SUFFIXES) else value
    data = {
        "calibration": sources.calibration,
        "test": sources.validation or sources.calibration,
        "ood_validation": sources.ood_validation,
    }
    plain = {
        "model": model,
        "data": {
            **{role: _absolute(reference) for role, reference in data.items() if reference is not None},
            **({"ood": {name: _absolute(given) for name, given in sources.ood.items()}} if sources.ood else {}),
            **{
                name: value for name in ("text_column", "label_column") if (value := getattr(sources, name)) is not None
            },
        },
        "seed": options.seed,
        **({"runtime": changed} if (changed := runtime.model_dump(mode="json", exclude_defaults=True)) else {}),
        "stages": [
            {"prune": options.model_dump(mode="json", exclude_defaults=True, exclude={"seed"})},
            {"fuse": {}},
            {"eval": {"compare": ["single", "members"]}},
        ],
    }
    text = yaml.safe_dump(_listed(plain), allow_unicode=True, sort_keys=False)
    write_bytes(file, (HEADER.format(point=point, name=file.name) + text).encode())


def _absolute(reference: str) -> str:
    return absolute(reference, Path.cwd())


def _listed(value: Any) -> Any:
    """Tuples as lists, which YAML can say."""
    if isinstance(value, Mapping):
        return {key: _listed(inner) for key, inner in value.items()}
    return [_listed(inner) for inner in value] if isinstance(value, list | tuple) else value
