"""The MODEL arguments of ``compress eval``: models, baselines, and their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.artifact.manifest import MANIFEST_NAME
from compress.cli.shared_options import named_references, open_given_model
from compress.errors import UsageError
from compress.evaluation.baselines.specification import Baseline, parse_baseline
from compress.home import expanded
from compress.references import scheme_of

if TYPE_CHECKING:
    from torch import nn

    from compress.evaluation.evaluate import Given


def named_models(values: Iterable[str]) -> dict[str, str | Baseline]:
    """The models by name; a baseline without a name is called by its word.

    Raises:
        UsageError: two have the same name, or a baseline lacks models.
    """
    written = []
    for value in values:
        baseline = parse_baseline(value)
        written.append(value if baseline is None else f"{baseline.kind}={value}")
    named = named_references(written, "MODEL")
    return {name: parse_baseline(reference) or reference for name, reference in named.items()}


def opened_models(named: Mapping[str, str | Baseline], details: Mapping[str, Any]) -> dict[str, Given]:
    """The models by name. The options that say how to open a model are for those that are no artifacts.

    Raises:
        UsageError: the weights could be those of several models, or of none.
    """
    references = [
        reference
        for given in named.values()
        for reference in (given.models if isinstance(given, Baseline) else [given])
        if isinstance(reference, str) and _of_a_family(reference)
    ]
    if "weights" in details and len(set(references)) != 1:
        raise UsageError(
            f"{len(set(references))} of the models could take these weights",
            where="--weights",
            fix="give exactly one model of a family",
        )

    def opened(reference: str | Path | nn.Module) -> str | Path | nn.Module:
        if isinstance(reference, str) and _of_a_family(reference):
            return open_given_model(reference, details)
        return Path(reference) if isinstance(reference, str) else reference

    return {
        name: Baseline(given.kind, tuple(map(opened, given.models))) if isinstance(given, Baseline) else opened(given)
        for name, given in named.items()
    }


def _of_a_family(reference: str) -> bool:
    """Whether a model is opened by its family: it has a scheme, or is a folder and no artifact."""
    folder = expanded(reference)
    return bool(scheme_of(reference)) or (folder.is_dir() and not (folder / MANIFEST_NAME).is_file())
