"""Making members differ: a bound on the overlap of their heads, met at the least cost in importance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from torch import Tensor

from compress.errors import UsageError

Selection = list[list[set[int]]]
"""``selection[member][layer]`` is the set of head slots that the member keeps in the layer."""


def jaccard(first: Sequence[set[int]], second: Sequence[set[int]]) -> float:
    """Shared heads over heads of either, counted over all the layers given; two empty selections overlap fully."""
    shared = sum(len(a & b) for a, b in zip(first, second, strict=True))
    either = sum(len(a | b) for a, b in zip(first, second, strict=True))
    return shared / either if either else 1.0


def overlap_matrix(selection: Selection) -> list[list[float]]:
    """Pairwise Jaccard overlap, ``[member][member]``."""
    return [[jaccard(first, second) for second in selection] for first in selection]


def largest_overlap(selection: Selection) -> float:
    """The largest pairwise overlap; 0 for one member."""
    return max((jaccard(first, second) for first, second in combinations(selection, 2)), default=0.0)


@dataclass(frozen=True)
class _Swap:
    """Member ``member`` gives up head ``out`` of ``layer`` for head ``into``, at a loss of importance."""

    member: int
    layer: int
    out: int
    into: int
    loss: float


def limit_overlap(selection: Selection, importance: Sequence[Sequence[Tensor]], bound: float) -> Selection:
    """Exchange heads until every pair of members overlaps by at most ``bound``.

    Greedy: each step makes the exchange that gives up the least importance per head by which it brings overlapping
    pairs nearer to the bound; equal ones are ordered by member, layer, head. The number of heads per layer stays.

    Args:
        selection: the heads that each member would keep; not changed.
        importance: ``importance[member][layer]``, ``(n_l,)``, comparable between layers.
        bound: largest pairwise Jaccard overlap allowed, 0..1.

    Raises:
        UsageError: the bound cannot be met; names the smallest overlap that was found.
    """
    check_bound(selection, [len(scores) for scores in importance[0]], bound)
    current = [[set(heads) for heads in member] for member in selection]
    while largest_overlap(current) > bound:
        best = min(
            _useful(current, importance, bound), key=lambda pair: (pair[0], pair[1].member, pair[1].layer), default=None
        )
        if best is None:
            raise _impossible(bound, f"found is {largest_overlap(current):.3f}")
        swap = best[1]
        current[swap.member][swap.layer] ^= {swap.out, swap.into}
    return current


def check_bound(selection: Selection, available: Sequence[int], bound: float) -> None:
    """Raise ``UsageError`` when counting alone shows that ``bound`` cannot be met; see ``smallest_overlap``."""
    least = smallest_overlap(selection, available)
    if least > bound + 1e-9:
        raise _impossible(bound, f"possible is {least:.3f}")


def smallest_overlap(selection: Selection, available: Sequence[int]) -> float:
    """A bound below which the largest overlap of two members cannot fall, whatever heads they keep; by counting.

    A head that n members keep is shared by n(n − 1)/2 pairs, fewest in all when each head of a layer is kept equally
    often. Shared heads are at most a share b/(1 + b) of the two members' heads when they overlap by at most b.

    Args:
        selection: of two or more members; how many heads each keeps in each layer is all that counts.
        available: heads of each layer.
    """
    shared = total = 0
    for layer, heads in enumerate(available):
        kept = sum(len(member[layer]) for member in selection)
        often, rest = divmod(kept, heads)
        shared += rest * comb(often + 1, 2) + (heads - rest) * comb(often, 2)
        total += kept * (len(selection) - 1)
    return shared / (total - shared) if shared else 0.0


def _impossible(bound: float, smallest: str) -> UsageError:
    return UsageError(
        f"members that overlap by at most {bound:g} cannot be chosen; the smallest overlap {smallest}",
        where="--max-overlap",
        fix="allow more overlap, keep fewer heads, or make fewer members",
    )


def _useful(current: Selection, importance: Sequence[Sequence[Tensor]], bound: float) -> Iterator[tuple[float, _Swap]]:
    """Exchanges that bring the overlaps nearer to the bound, with their loss of importance per head of progress."""
    excess = _excess(current, bound)
    for swap in _swaps(current, importance):
        progress = 0
        for other, heads in enumerate(current):
            if other == swap.member:
                continue
            change = (swap.into in heads[swap.layer]) - (swap.out in heads[swap.layer])
            before = excess[swap.member][other]
            progress += max(0, before) - max(0, before + change)
        if progress > 0:
            yield swap.loss / progress, swap


def _excess(current: Selection, bound: float) -> list[list[int]]:
    """Shared heads of every pair beyond what the bound allows (negative: so many to spare)."""
    sizes = [sum(len(heads) for heads in member) for member in current]
    result = []
    for first, size in zip(current, sizes, strict=True):
        row = []
        for second, other_size in zip(current, sizes, strict=True):
            shared = sum(len(a & b) for a, b in zip(first, second, strict=True))
            # shared / (size + other_size - shared) <= bound
            allowed = int((size + other_size) * bound / (1 + bound) + 1e-9)
            row.append(shared - allowed)
        result.append(row)
    return result


def _swaps(current: Selection, importance: Sequence[Sequence[Tensor]]) -> Iterator[_Swap]:
    for member, layers in enumerate(current):
        for layer, kept in enumerate(layers):
            scores = importance[member][layer].tolist()
            outside = [head for head in range(len(scores)) if head not in kept]
            for out in sorted(kept):
                for into in outside:
                    yield _Swap(member, layer, out, into, scores[out] - scores[into])
