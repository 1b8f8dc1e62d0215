"""The choices that a sweep compares."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated

from pydantic import Field

from compress.options import Options
from compress.pruning.options import Keep, Prune


class Grid(Options):
    """Every combination of heads kept, members and branch layer."""

    keep: tuple[Keep, ...] = Field((4,), min_length=1, description="Heads kept per layer: counts or fractions.")
    members: tuple[Annotated[int, Field(ge=1)], ...] = Field((3,), min_length=1, description="Numbers of members.")
    branch_layer: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (0,), min_length=1, description="First layers in which members may differ."
    )

    def points(self, base: Prune) -> Iterator[tuple[str, Prune]]:
        """Name and options of each combination, such as ``k4-m3-b6``; what is not in the grid comes from ``base``."""
        named = {}
        for keep, members, branch in product(self.keep, self.members, self.branch_layer):
            if members == 1 and base.trunk_keep is None and branch != self.branch_layer[0]:
                continue  # one member has no trunk of its own: the same model again
            changes = {"keep": keep, "members": members, "branch_layer": branch}
            named[f"k{keep}-m{members}-b{branch}"] = base.model_copy(update=changes)
        yield from named.items()

    def names(self) -> list[str]:
        """The names of all points."""
        return [name for name, _ in self.points(Prune())]
