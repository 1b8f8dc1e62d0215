"""From importance to the heads that each member keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.errors import UsageError
from compress.pruning.options import Prune
from compress.pruning.overlap import Selection, check_bound, limit_overlap, overlap_matrix
from compress.pruning.scores import HeadScores, Importance, normalised


@dataclass(frozen=True)
class MemberHeads:
    """What was chosen.

    Attributes:
        slots: ``slots[member][layer]``, ascending positions within the model's present heads.
        free: what ``slots`` would be without a bound on the overlap.
        overlap: pairwise Jaccard overlap over the layers from the branch layer on, ``[member][member]``.
        importance_kept: per member the share of its own normalised importance that its heads hold.
        importance_lost_to_overlap: the share of importance given up to meet ``max_overlap``, mean over members.
    """

    slots: tuple[tuple[tuple[int, ...], ...], ...]
    free: tuple[tuple[tuple[int, ...], ...], ...]
    overlap: tuple[tuple[float, ...], ...]
    importance_kept: tuple[float, ...]
    importance_lost_to_overlap: float


def heads_to_keep(keep: int | float, available: int) -> int:
    """How many of ``available`` heads a count or a fraction keeps: fractions round to nearest, at least one stays.

    Raises:
        UsageError: a count above what there is.
    """
    if isinstance(keep, float):
        return max(1, math.floor(keep * available + 0.5))
    if keep > available:
        raise UsageError(f"cannot keep {keep} of {available} heads", where="--keep", fix=f"keep at most {available}")
    return keep


def strongest(scores: Tensor, count: int) -> list[int]:
    """The ``count`` highest positions, ascending; ties go to the lowest."""
    order = torch.sort(scores, descending=True, stable=True).indices
    return sorted(order[:count].tolist())


def strongest_of_all(importance: Sequence[Tensor], keep: int | float) -> list[set[int]]:
    """Heads of several layers in one ranking; each layer's own best head stays, whatever its rank.

    Args:
        importance: per layer ``(n_l,)``, normalised within the layer.
        keep: a fraction of all heads, or a mean count per layer.
    """
    total = sum(len(scores) for scores in importance)
    if isinstance(keep, int):
        for scores in importance:
            heads_to_keep(keep, len(scores))
    count = heads_to_keep(keep, total) if isinstance(keep, float) else keep * len(importance)
    kept = [{strongest(scores, 1)[0]} for scores in importance]
    ranked = sorted(
        ((-float(score), layer, head) for layer, scores in enumerate(importance) for head, score in enumerate(scores))
    )
    remaining = count - len(kept)
    for _, layer, head in ranked:
        if remaining <= 0:
            break
        if head not in kept[layer]:
            kept[layer].add(head)
            remaining -= 1
    return kept


def select(scores: HeadScores, options: Prune) -> MemberHeads:
    """The heads of every member, from scores that need no further look at the model.

    Below the branch layer all members keep the heads that are strongest over the whole calibration set; from it on each
    keeps its own strongest, exchanged where ``max_overlap`` asks for it.

    Raises:
        UsageError: more heads, layers or difference are asked for than there are.
    """
    branch = options.numbered_branch
    check_branch(branch, len(scores.samples), options.members)
    trunk = _strongest_heads(normalised(scores.mean())[:branch], trunk_keep(options), options.scope)
    importance = [normalised(own) for own in scores.of_members(options.members, options.seed)]
    free = [_strongest_heads(own[branch:], options.keep, options.scope) for own in importance]
    return differing_members(trunk, free, importance, options.max_overlap)


def differing_members(
    trunk: list[set[int]], free: Selection, importance: Sequence[Importance], max_overlap: float | None
) -> MemberHeads:
    """Members that keep the trunk's heads and their own choice above it, exchanged where the overlap is too large.

    Args:
        trunk: slots per layer below the branch layer.
        free: what every member would keep from the branch layer on, ``[member][layer]``.
        importance: normalised, per member and layer of the model.
        max_overlap: largest pairwise Jaccard overlap from the branch layer on; None for any.

    Raises:
        UsageError: the bound cannot be met; names the smallest overlap that was found.
    """
    branches = free
    if max_overlap is not None and len(free) > 1:
        branches = limit_overlap(free, [own[len(trunk) :] for own in importance], max_overlap)
    selection = [trunk + own for own in branches]
    kept = [_share(own, heads) for own, heads in zip(importance, selection, strict=True)]
    before = [_share(own, trunk + heads) for own, heads in zip(importance, free, strict=True)]
    return MemberHeads(
        slots=_as_slots(selection),
        free=_as_slots([trunk + own for own in free]),
        overlap=tuple(tuple(row) for row in overlap_matrix(branches)),
        importance_kept=tuple(kept),
        importance_lost_to_overlap=sum(b - k for b, k in zip(before, kept, strict=True)) / len(kept),
    )


def check_counts(heads: Sequence[int], options: Prune) -> None:
    """Refuse before any scoring what the numbers of heads alone rule out.

    How many heads a layer keeps by a global ranking is known from the scores only, and the branch layer ``auto`` is
    looked for among those that are possible.

    Args:
        heads: of each layer.
        options: see ``Prune``.

    Raises:
        UsageError: as ``select``.
    """
    if options.branch_layer == "auto" or options.scope == "global":
        return
    branch = options.numbered_branch
    check_branch(branch, len(heads), options.members)
    for count in heads[:branch]:
        heads_to_keep(trunk_keep(options), count)
    kept = [set(range(heads_to_keep(options.keep, count))) for count in heads[branch:]]
    if options.max_overlap is not None and options.members > 1:
        check_bound([kept] * options.members, heads[branch:], options.max_overlap)


def check_branch(branch: int, layers: int, members: int) -> None:
    """Raise ``UsageError`` when a branch layer leaves no layer in which members could differ."""
    if branch > layers or (branch == layers and members > 1):
        raise UsageError(
            f"branch layer {branch} leaves no layer in which members could differ (the model has {layers})",
            where="--branch-layer",
            fix=f"choose 0 to {layers - 1}",
        )


def trunk_keep(options: Prune) -> int | float:
    """How many heads a layer below the branch layer keeps."""
    return options.keep if options.trunk_keep is None else options.trunk_keep


def _as_slots(selection: Selection) -> tuple[tuple[tuple[int, ...], ...], ...]:
    return tuple(tuple(tuple(sorted(heads)) for heads in member) for member in selection)


def _strongest_heads(importance: Sequence[Tensor], keep: int | float, scope: str) -> list[set[int]]:
    if scope == "global":
        return strongest_of_all(importance, keep) if importance else []
    return [set(strongest(own, heads_to_keep(keep, len(own)))) for own in importance]


def _share(importance: Importance, heads: Sequence[set[int]]) -> float:
    total = sum(float(scores.sum()) for scores in importance)
    held = sum(float(scores[sorted(kept)].sum()) for scores, kept in zip(importance, heads, strict=True))
    return held / total if total else 0.0
