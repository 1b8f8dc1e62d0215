"""Making, checking and writing the pruned copies."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.artifact.durable import write_bytes
from compress.artifact.provenance import BRANCH_CANDIDATES, Provenance
from compress.artifact.store import PROVENANCE, json_bytes, save_model
from compress.pruning.branching import BranchCandidate
from compress.pruning.circuit_losses import CircuitLosses
from compress.pruning.masking import head_numbers
from compress.pruning.options import Prune
from compress.pruning.result import PruneResult
from compress.pruning.selection import MemberHeads
from compress.pruning.self_check import check_pruned
from compress.transformer.cost import count_parameters
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.surgery import prune_heads


@dataclass(frozen=True)
class Choice:
    """The heads of every member and how they were found.

    Attributes:
        heads: the heads.
        options: with a number as branch layer.
        model: fingerprint of the single model.
        data, ood: fingerprints of the calibration and the foreign validation set.
        candidates: the branch layers that were looked at.
        circuits: the losses of every member's circuit.
    """

    heads: MemberHeads
    options: Prune
    model: str
    data: str | None
    ood: str | None = None
    candidates: tuple[BranchCandidate, ...] = ()
    circuits: tuple[CircuitLosses, ...] = ()


def write_members(partial: Path, out: Path, model: Transformer, choice: Choice, inputs: Inputs) -> PruneResult:
    """Make, check and write one copy after the other; one is in memory at a time, and it shares all but its attentions.

    Args:
        partial: folder to write into.
        out: the name that it will have.
        model: the single model.
        choice: the heads.
        inputs: a few inputs for the self-check.

    Raises:
        SelfCheckError: a copy does not equal the masked model.
    """
    chosen = choice.heads
    kept_heads, parameters, differences = [], [], []
    for member, slots in enumerate(chosen.slots):
        name = f"member-{member}"
        heads = head_numbers(model, slots)
        pruned = prune_heads(model, heads)
        differences.append(check_pruned(model, pruned, inputs, name))
        kept_heads.append(heads)
        parameters.append(count_parameters(pruned))
        notes: dict[str, Any] = {"importance_kept": round(chosen.importance_kept[member], 6)}
        if choice.circuits:
            notes["circuit"] = _rounded(choice.circuits[member])
        save_model(pruned, partial / name, _provenance(choice, notes, member=member))
    notes = {
        "overlap": [[round(value, 6) for value in row] for row in chosen.overlap],
        "importance_lost_to_overlap": round(chosen.importance_lost_to_overlap, 6),
    }
    if choice.candidates:
        notes[BRANCH_CANDIDATES] = [_rounded(candidate) for candidate in choice.candidates]
    if choice.circuits:
        notes["circuits"] = [_rounded(circuit) for circuit in choice.circuits]
    write_bytes(partial / PROVENANCE, json_bytes(_provenance(choice, notes).model_dump_json()))
    return PruneResult(
        folder=out,
        kept_heads=tuple(kept_heads),
        overlap=chosen.overlap,
        parameters=tuple(parameters),
        original_parameters=count_parameters(model),
        largest_difference=max(differences),
        branch_layer=choice.options.numbered_branch,
        branch_candidates=choice.candidates,
        importance_lost_to_overlap=chosen.importance_lost_to_overlap,
        circuits=choice.circuits,
    )


def _provenance(choice: Choice, notes: dict[str, Any], **options: int) -> Provenance:
    if choice.ood is not None:
        notes = {**notes, "ood_fingerprint": choice.ood}
    return Provenance(
        stage="prune",
        options={**choice.options.model_dump(mode="json"), **options},
        parents=(choice.model,),
        data_fingerprint=choice.data,
        notes=notes,
    )


def _rounded(measured: BranchCandidate | CircuitLosses) -> dict[str, Any]:
    """JSON values with six decimals, which is more than another machine reproduces."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items()}
        return round(value, 6) if isinstance(value, float) else value

    return dict(plain(dataclasses.asdict(measured)))
