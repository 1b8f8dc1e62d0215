"""Options of the ``prune`` stage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from compress.errors import UsageError
from compress.options import Options

Keep = Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0.0, le=1.0)]
BranchLayer = Annotated[int, Field(ge=0)] | Literal["auto"]
Objective = Literal["task", "ood", "avg"]


class Prune(Options):
    """Prune one model into differently pruned copies (members)."""

    method: Literal["taylor", "circuit", "magnitude", "random"] = Field(
        "taylor", description="How the heads that matter are found."
    )
    members: int = Field(3, ge=1, description="Number of pruned copies.")
    keep: Keep = Field(
        4, description="Heads kept per layer: a count (4) or a fraction (0.33); at least one head stays."
    )
    scope: Literal["layer", "global"] = Field(
        "layer", description="layer: the same share in every layer; global: heads of all layers compete."
    )
    branch_layer: BranchLayer = Field(
        0,
        description="First layer in which members may differ; below it they share a trunk. auto: the last that leaves "
        "them different enough (see min_disagreement).",
    )
    min_disagreement: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="For branch_layer auto: least share of calibration inputs on which two members must answer "
        "differently, averaged over pairs.",
    )
    trunk_keep: Keep | None = Field(
        None, description="Heads kept per layer below the branch layer (default: as --keep)."
    )
    max_overlap: float | None = Field(
        None, ge=0.0, le=1.0, description="Upper bound on the pairwise Jaccard overlap of the members' heads."
    )
    objective: Objective | None = Field(
        None,
        description="What circuits are searched by: task loss, detection of foreign data (ood), or both (avg). "
        "Default: one each for 3 members with foreign data, else task.",
    )
    seed: int = Field(0, ge=0, description="Seed of the bootstraps and of random scores.")

    @property
    def numbered_branch(self) -> int:
        """The branch layer as a number; raises ``ValueError`` for auto, which ``choose_branch`` resolves first."""
        if self.branch_layer == "auto":
            raise ValueError("branch_layer auto is not resolved yet")
        return self.branch_layer


def check_options(options: Prune, *, ood: bool, scores: bool = False) -> None:
    """Refuse what cannot work together, before anything is opened.

    Args:
        options: the options.
        ood: whether a foreign validation set was given.
        scores: whether saved scores were given, which may have seen such a set.

    Raises:
        UsageError: names the option and the reason.
    """
    circuit = options.method == "circuit"
    if circuit and options.scope == "global":
        raise UsageError(
            "circuits have no global scope, because each layer's losses are measured with other heads masked below it "
            "and do not compare between layers",
            where="--scope",
            fix="use --scope layer",
        )
    if options.objective is not None and not circuit:
        raise UsageError(
            f"only circuits are searched by an objective, not {options.method}",
            where="--objective",
            fix="use --method circuit",
        )
    if ood and not circuit:
        raise UsageError(f"{options.method} uses no foreign data", where="--ood", fix="use --method circuit")
    if options.objective in ("ood", "avg") and not ood and not scores:
        raise UsageError(
            f"the objective {options.objective} needs a foreign validation set",
            where="--objective",
            fix="pass --ood (in a recipe: data.ood_validation)",
        )
    if options.branch_layer == "auto" and options.members == 1:
        raise UsageError(
            "a single member has none to disagree with", where="--branch-layer", fix="name a layer, or make 2 members"
        )


def needs_labels(options: Prune) -> bool:
    """Whether the calibration set must be labelled."""
    return options.method == "taylor" or (options.method == "circuit" and options.objective != "ood")
