"""What is compared: the library's own model, this project's, and what can be made of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from compress.backbones.base import assemble
from compress.backbones.registry import ADAPTERS
from compress.benching.adaptive import budgeted, routed
from compress.benching.bare import BareProducts
from compress.benching.flops import library_flops
from compress.benching.options import Bench
from compress.benching.result import Kind
from compress.errors import UsageError
from compress.evaluation.subject import Subject
from compress.fusion.in_memory import fuse_models
from compress.pruning.selection import check_branch, heads_to_keep
from compress.transformer.config import ModelConfig
from compress.transformer.cost import count_cost, count_parameters
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.surgery import prune_heads

LIBRARY, SINGLE = "library", "single"
Heads = list[tuple[int, ...]]


@dataclass(frozen=True)
class Variant:
    """One row of the comparison.

    Attributes:
        name: its name in the table.
        kind: what it is.
        module: holds its weights.
        flops: per input.
        params: distinct parameters.
        members: M.
        branch_layer: of a fused model.
        prepare: makes of a batch the call that is timed; None: the module itself.
    """

    name: str
    kind: Kind
    module: nn.Module
    flops: int
    params: int
    members: int = 1
    branch_layer: int | None = None
    prepare: Callable[[Inputs], Callable[[], object]] | None = None

    def bound(self, inputs: Inputs) -> Callable[[], object]:
        """One forward pass of a batch."""
        return partial(self.module, inputs) if self.prepare is None else self.prepare(inputs)


class InTurn(nn.Module):
    """Models that run one after the other; the mean of their outputs, as a Deep Ensemble answers."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, inputs: Inputs) -> Tensor:
        return torch.stack([model(inputs) for model in self.models]).softmax(-1).mean(0)


def original(config: ModelConfig) -> Transformer:
    """The unpruned single model that a model was made from, with the library's initial weights."""
    parts = ADAPTERS[config.backbone.adapter].skeleton(config.backbone, len(config.labels))
    return assemble(parts, config.backbone, config.labels, config.preprocessing)


def baselines(single: Transformer, length: int | None) -> list[Variant]:
    """The library's own model, and this project's with the same structure, on its device and in its number format."""
    config, tensor = single.config, next(single.parameters())
    library = ADAPTERS[config.backbone.adapter].library_model(config.backbone, len(config.labels))
    library = library.to(tensor.device, tensor.dtype)
    weights = sum(parameter.numel() for parameter in library.parameters())
    return [
        Variant(LIBRARY, "library", library, library_flops(single, length), weights),
        _of(single, SINGLE, "single", length),
    ]


def derived(single: Transformer, library: Variant, options: Bench) -> Iterator[Variant]:
    """Ensembles of the single model: whole copies, pruned copies, and these fused at every branch layer.

    The heads are any: which they are changes no time. Separate models share no weight, as it would be.

    Raises:
        UsageError: members cannot be made as ``options`` ask.
    """
    members, length = options.members, options.length
    if members == 1:
        yield _of(_pruned(single, options, 0)[0], "pruned", "pruned", length)
        return
    branches = options.branch_layer or default_branches(len(single.layers))
    if options.separate:
        yield from separate(single, library, options, branches[0])
    for branch in branches:
        fused = fuse_models(_pruned(single, options, branch), mlp=options.mlp)
        variant = _of(fused, f"{members} fused at {branch}", "fused", length)
        yield from with_changes(variant, fused, options)


def with_changes(variant: Variant, model: Transformer, options: Bench) -> Iterator[Variant]:
    """A variant, and what ``options`` ask for beside it: budgets, routers, its bare products."""
    yield variant
    if options.budget is not None:
        own = budgeted(model, options.budget)
        yield _changed(variant, own, "budgeted", f"budget {options.budget:g}")
    if options.capacity is not None:
        own = routed(model, options.capacity)
        yield _changed(variant, own, "routed", f"capacity {options.capacity:g}")
    if options.bare and not model.config.attached:  # which products run is not known before
        yield replace(variant, name=f"{variant.name}, bare", kind="bare", prepare=partial(BareProducts, model))


def _changed(variant: Variant, model: Transformer, kind: Kind, what: str) -> Variant:
    return replace(variant, name=f"{variant.name}, {what}", kind=kind, module=model, params=count_parameters(model))


def separate(single: Transformer, library: Variant, options: Bench, branch: int) -> Iterator[Variant]:
    """The Deep Ensemble and the pruned models that run one after the other; they share no weight."""
    members = options.members
    copies = [library.module, *(copy.deepcopy(library.module) for _ in range(members - 1))]
    yield Variant(
        f"Deep Ensemble of {members}",
        "deep_ensemble",
        InTurn(copies),
        members * library.flops,
        members * library.params,
        members,
    )
    pruned = _pruned(single, options, branch)
    apart = InTurn([pruned[0], *(copy.deepcopy(member) for member in pruned[1:])])
    yield Variant(
        f"{members} pruned models",
        "members",
        apart,
        sum(count_cost(member, length=options.length).flops for member in pruned),
        sum(count_parameters(member) for member in pruned),
        members,
    )


def of_subject(subject: Subject, length: int | None) -> Variant:
    """An artifact as it is."""
    kinds: dict[str, Kind] = {"single": "single", "pruned": "pruned", "members": "members", "fused": "fused"}
    config = subject.models[0].config
    kind = "budgeted" if config.budget is not None else "routed" if config.routing is not None else kinds[subject.kind]
    branch = subject.branch_layer if subject.kind == "fused" else None
    return Variant(
        subject.name,
        kind,
        subject.module,
        sum(count_cost(model, length=length).flops for model in subject.models),
        subject.parameters,
        subject.members,
        branch,
    )


def default_branches(layers: int) -> tuple[int, ...]:
    """From the first layer on, from the middle on, and the last quarter."""
    return tuple(dict.fromkeys((0, layers // 2, layers * 3 // 4)))


def _of(model: Transformer, name: str, kind: Kind, length: int | None) -> Variant:
    structure = model.structure
    branch = structure.branch_layer if structure.members > 1 else None
    cost = count_cost(model, length=length)
    return Variant(name, kind, model, cost.flops, cost.parameters, structure.members, branch)


def _pruned(single: Transformer, options: Bench, branch: int) -> list[Transformer]:
    """Pruned copies that share what pruning does not touch."""
    check_branch(branch, len(single.layers), options.members)
    return [prune_heads(single, _heads(single, options, branch, member)) for member in range(options.members)]


def _heads(single: Transformer, options: Bench, branch: int, member: int) -> Heads:
    """The first heads below the branch layer; from it on each member's own, shifted by as many as are kept."""
    kept = []
    for layer, module in enumerate(single.layers):
        total = module.attention.original_heads
        wanted = options.keep if layer >= branch or options.trunk_keep is None else options.trunk_keep
        count = heads_to_keep(wanted, total)
        if layer >= branch and count == total:
            raise UsageError(
                "members that keep all heads do not differ", where="--keep", fix=f"keep at most {total - 1}"
            )
        first = member * count if layer >= branch else 0
        kept.append(tuple(sorted((first + head) % total for head in range(count))))
    return kept
