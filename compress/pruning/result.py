"""What the ``prune`` stage did."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.pruning.branching import BranchCandidate
from compress.pruning.circuit_losses import CircuitLosses


@dataclass(frozen=True)
class PruneResult:
    """What ``prune`` wrote.

    Attributes:
        folder: the set of members.
        kept_heads: ``kept_heads[member][layer]``, numbers in the original model.
        overlap: pairwise Jaccard overlap from the branch layer on.
        parameters: of every member.
        original_parameters: of the model that was pruned.
        largest_difference: the worst of the self-checks, relative to the largest logit.
        branch_layer: the first layer in which members may differ.
        branch_candidates: for ``branch_layer: auto``, the layers that were looked at.
        importance_lost_to_overlap: the share of importance given up to meet ``max_overlap``, mean over members.
        circuits: the losses of every member's circuit; empty for other methods, and without data to measure them on.
    """

    folder: Path
    kept_heads: tuple[tuple[tuple[int, ...], ...], ...]
    overlap: tuple[tuple[float, ...], ...]
    parameters: tuple[int, ...]
    original_parameters: int
    largest_difference: float
    branch_layer: int = 0
    branch_candidates: tuple[BranchCandidate, ...] = ()
    importance_lost_to_overlap: float = 0.0
    circuits: tuple[CircuitLosses, ...] = ()

    def table(self) -> str:
        """A short text for the terminal."""
        kept = 1 - sum(self.parameters) / len(self.parameters) / self.original_parameters
        heads = [" ".join(str(len(heads)) for heads in member) for member in self.kept_heads]
        lines = [f"{len(self.kept_heads)} members in {self.folder}, each with {kept:.1%} fewer parameters"]
        lines += [f"  member-{number}   heads kept per layer  {counts}" for number, counts in enumerate(heads)]
        lines += [f"  {line}" for line in self.notes()]
        return "\n".join(lines)

    def notes(self) -> Iterator[str]:
        """What else there is to say, a line each."""
        pairs = [value for member, row in enumerate(self.overlap) for value in row[:member]]
        if pairs:
            span = f"{min(pairs):.2f} to {max(pairs):.2f}"
            yield f"overlap of two members' heads (Jaccard, from layer {self.branch_layer} on): {span}"
        if self.importance_lost_to_overlap > 0:
            yield f"importance given up to bound the overlap: {self.importance_lost_to_overlap:.1%}"
        for candidate in self.branch_candidates:
            mark = "  <- taken" if candidate.branch_layer == self.branch_layer else ""
            yield f"branch layer {candidate.branch_layer}: {_described(candidate)}{mark}"
        for member, circuit in enumerate(self.circuits):
            pairs_of = (("its heads alone", circuit.kept), ("without them", circuit.masked))
            shown = "; ".join(f"{name}: {pair.in_words()}" for name, pair in pairs_of)
            yield f"member-{member}, circuit by {circuit.objective}: {shown}"
        yield f"self-check against the masked original: largest difference {self.largest_difference:.0e}"

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def _described(candidate: BranchCandidate) -> str:
    if candidate.disagreement is None or candidate.flops is None:
        return f"impossible, {candidate.reason}"
    return f"members disagree on {candidate.disagreement:.1%}, {candidate.flops / 1e6:,.1f} M FLOPs fused"
