"""Overlap of the heads that members keep."""

from __future__ import annotations

from itertools import combinations

from compress.evaluation.predictions import KeptHeads
from compress.evaluation.unavailable import UnavailableMetricError


def jaccard(kept_heads: KeptHeads | None, branch_layer: int = 0) -> float:
    """|A ∩ B| / |A ∪ B| of the sets of kept (layer, head), averaged over pairs of members; range [0, 1].

    Jaccard 1912. Only layers from ``branch_layer`` on count: below it members share their heads by construction.

    Args:
        kept_heads: ``kept_heads[layer][member]`` lists heads by their number in the original model.
        branch_layer: the first layer that counts.

    Raises:
        UnavailableMetricError: heads unknown, a single member, or no layer from ``branch_layer`` on.
    """
    if kept_heads is None:
        raise UnavailableMetricError("the heads that each member keeps are not known")
    streams = list(enumerate(kept_heads))[branch_layer:]
    if not streams:
        raise UnavailableMetricError("the members share every layer")
    members = len(streams[0][1])
    if members < 2:
        raise UnavailableMetricError("needs at least two members")
    kept = [{(layer, head) for layer, groups in streams for head in groups[member]} for member in range(members)]
    overlaps = [len(first & second) / len(first | second) for first, second in combinations(kept, 2)]
    return sum(overlaps) / len(overlaps)
