"""Options of the ``prune`` stage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from compress.options import Options

Keep = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0.0, le=1.0)]


class Prune(Options):
    """Prune one model into differently pruned copies (members)."""

    method: Literal["taylor", "magnitude", "random"] = Field("taylor", description="How a head's importance is scored.")
    members: int = Field(3, ge=1, description="Number of pruned copies.")
    keep: Keep = Field(
        4, description="Heads kept per layer: a count (4) or a fraction (0.33); at least one head stays."
    )
    scope: Literal["layer", "global"] = Field(
        "layer", description="layer: the same share in every layer; global: heads of all layers compete."
    )
    branch_layer: int = Field(
        0, ge=0, description="First layer in which members may differ; below it they share a trunk."
    )
    trunk_keep: Keep | None = Field(
        None, description="Heads kept per layer below the branch layer (default: as --keep)."
    )
    max_overlap: float | None = Field(
        None, ge=0.0, le=1.0, description="Upper bound on the pairwise Jaccard overlap of the members' heads."
    )
    seed: int = Field(0, ge=0, description="Seed of the bootstraps and of random scores.")
