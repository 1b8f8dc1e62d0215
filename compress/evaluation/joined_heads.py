"""The heads of models that answer together, as if they were the members of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Heads = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class ModelHeads:
    """The heads of one model.

    Attributes:
        original: heads per layer before any was pruned.
        kept: ``[layer][member]``, by their number in the original model; a shared layer lists its heads once.
        members: M.
    """

    original: tuple[int, ...]
    kept: Heads
    members: int


def joined_heads(models: Sequence[ModelHeads]) -> Heads | None:
    """``[layer][member]`` over the members of all models; None when they are of different architectures.

    A single model's heads come back as they are; of several, a shared layer lists its heads for every member.
    """
    if len({model.original for model in models}) > 1:
        return None
    if len(models) == 1:
        return models[0].kept
    return tuple(
        tuple(heads for model in models for heads in _of_every_member(model, layer))
        for layer in range(len(models[0].original))
    )


def _of_every_member(model: ModelHeads, layer: int) -> tuple[tuple[int, ...], ...]:
    kept = model.kept[layer]
    return kept if len(kept) == model.members else kept * model.members


def first_difference(kept: Heads | None) -> int:
    """The first layer in which members keep different heads; the number of layers when none does."""
    layers = kept or ()
    return next((layer for layer, heads in enumerate(layers) if len(set(heads)) > 1), len(layers))
