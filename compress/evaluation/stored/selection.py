"""Which stored models are compared, and ensembles of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.errors import ModelError, UsageError
from compress.evaluation.baselines.specification import Baseline, parse_baseline
from compress.evaluation.costs import COUNTED
from compress.evaluation.joined_heads import Heads, ModelHeads, first_difference, joined_heads
from compress.evaluation.result import Cost
from compress.evaluation.stored.read import Part
from compress.evaluation.stored.schema import StoredModel, StoredPredictions
from compress.registry import nearest

ALL = slice(None)
FIRST = slice(0, 1)


@dataclass(frozen=True)
class Selected:
    """One row of a comparison.

    Attributes:
        name: in the table.
        kind: as in ``ModelResult``.
        models: the stored models that it is made of.
        parts: their members.
    """

    name: str
    kind: str
    models: tuple[StoredModel, ...]
    parts: tuple[Part, ...]

    @property
    def members(self) -> int:
        """M."""
        if self.parts[0][1] == FIRST:
            return 1
        return sum(model.members for model in self.models)

    @property
    def baseline(self) -> bool:
        """Whether gates pass it over."""
        return self.kind != self.models[0].kind or self.models[0].baseline

    @property
    def kept_heads(self) -> Heads | None:
        """``[layer][member]``; None when unknown."""
        if not all(model.kept_heads for model in self.models):
            return None
        if self.parts[0][1] == FIRST:
            return tuple(layer[:1] for layer in self.models[0].kept_heads)
        return joined_heads([ModelHeads(own.original_heads, own.kept_heads, own.members) for own in self.models])

    @property
    def branch_layer(self) -> int:
        """The first layer in which members differ."""
        return self.models[0].branch_layer if len(self.models) == 1 else first_difference(self.kept_heads)

    @property
    def cost(self) -> Cost:
        """What is known without the models: an ensemble costs what its models cost together."""
        if self.parts[0][1] == FIRST and self.models[0].members > 1:
            return Cost()
        costs = [model.cost for model in self.models]
        total = {}
        for name in COUNTED:
            values = [getattr(cost, name) for cost in costs]
            total[name] = None if None in values else sum(values)
        return Cost(**total)


def select_stored(stored: StoredPredictions, wanted: Mapping[str, str | Baseline] | None) -> tuple[Selected, ...]:
    """The rows that a user asks for.

    Args:
        stored: what there is.
        wanted: by name, a stored model's name, ``deep_ensemble:a,b`` or ``pruned:members``; None for all.

    Raises:
        UsageError: no such stored model, or a baseline that needs the model itself.
    """
    by_name = {model.name: model for model in stored.models}
    if not wanted:
        return tuple(Selected(name, model.kind, (model,), ((name, ALL),)) for name, model in by_name.items())
    return tuple(_selected(name, given, by_name) for name, given in wanted.items())


def _selected(name: str, given: str | Baseline, stored: Mapping[str, StoredModel]) -> Selected:
    baseline = given if isinstance(given, Baseline) else None if given in stored else parse_baseline(given)
    if baseline is None:
        model = _stored(str(given), stored)
        return Selected(name, model.kind, (model,), ((model.name, ALL),))
    models = tuple(_stored(str(reference), stored) for reference in baseline.models)
    if baseline.kind == "pruned":
        if models[0].kind != "members":
            raise ModelError("is no set of pruned members", where=models[0].name, fix="name a set of members")
        return Selected(name, "pruned", models, ((models[0].name, FIRST),))
    if baseline.kind == "single" and models[0].members > 1:
        raise ModelError(f"has {models[0].members} members", where=models[0].name, fix="name a single model")
    if baseline.kind not in ("single", "deep_ensemble"):
        raise UsageError(
            f"{baseline.kind} cannot be made from stored predictions", where=name, fix="evaluate the model itself"
        )
    return Selected(name, baseline.kind, models, tuple((model.name, ALL) for model in models))


def _stored(name: str, stored: Mapping[str, StoredModel]) -> StoredModel:
    if name not in stored:
        raise UsageError(f"no predictions of {name!r} are stored", where="MODEL", fix=nearest(name, stored))
    return stored[name]
