"""Where members part: the latest layer, which is the cheapest, that still leaves them different."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from compress.backbones.registry import build_skeleton
from compress.data.base import Dataset
from compress.errors import UsageError
from compress.pruning.chooser import MemberChooser
from compress.pruning.masking import Slots, head_numbers, only
from compress.pruning.options import Prune
from compress.pruning.outcomes import masked_outcomes
from compress.runtime import Runtime
from compress.transformer.config import Structure
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer


@dataclass(frozen=True)
class BranchCandidate:
    """A branch layer that was looked at.

    Attributes:
        branch_layer: the first layer in which members may differ.
        disagreement: share of calibration inputs on which two members answer differently, averaged over pairs; None
            where no members could be chosen.
        flops: of one input through the fused model; None likewise.
        reason: why no members could be chosen.
    """

    branch_layer: int
    disagreement: float | None = None
    flops: int | None = None
    reason: str | None = None


def choose_branch(
    chooser: MemberChooser, model: Transformer, dataset: Dataset, options: Prune, runtime: Runtime
) -> tuple[Prune, tuple[BranchCandidate, ...]]:
    """Find the largest branch layer whose members disagree at least ``options.min_disagreement``.

    Members are compared in memory, as the model with their other heads masked. Candidates go from the last layer down;
    where the choice of heads is free all are looked at, and where each is a search of its own the first that suffices
    ends it.

    Args:
        chooser: what chooses heads for a branch layer.
        model: the single model.
        dataset: the calibration set; labels are not used.
        options: with ``branch_layer`` auto.
        runtime: device, number format, batch size.

    Returns:
        The options with the number of the branch layer, and the candidates in ascending order.

    Raises:
        UsageError: no branch layer suffices; names the largest disagreement found.
    """
    candidates: list[BranchCandidate] = []
    chosen: int | None = None
    for branch in reversed(range(len(model.layers))):
        candidate = _candidate(chooser, model, dataset, options.model_copy(update={"branch_layer": branch}), runtime)
        candidates.insert(0, candidate)
        if chosen is None and (candidate.disagreement or 0.0) >= options.min_disagreement and not candidate.reason:
            chosen = branch
        if chosen is not None and not chooser.chooses_freely:
            break
    if chosen is None:
        raise _none_suffices(candidates, options.min_disagreement)
    return options.model_copy(update={"branch_layer": chosen}), tuple(candidates)


def _candidate(
    chooser: MemberChooser, model: Transformer, dataset: Dataset, options: Prune, runtime: Runtime
) -> BranchCandidate:
    branch = options.numbered_branch
    try:
        slots = chooser.choose(options).slots
    except UsageError as error:
        return BranchCandidate(branch, reason=error.what)
    return BranchCandidate(branch, disagreement(model, dataset, slots, runtime), fused_flops(model, slots))


def disagreement(model: Transformer, dataset: Dataset, slots: Sequence[Slots], runtime: Runtime) -> float:
    """Share of inputs on which two members answer differently, averaged over pairs; 0 for one member."""
    variants = [only(model, kept) for kept in slots]
    predicted = masked_outcomes(model, dataset, variants, runtime, "compare members").predicted
    pairs = list(combinations(predicted, 2))
    return sum(float((one != other).double().mean()) for one, other in pairs) / max(1, len(pairs))


def fused_flops(model: Transformer, slots: Sequence[Slots]) -> int:
    """FLOPs of one input through the members side by side; the streams part at the first layer in which they differ."""
    kept = [tuple((heads,) for heads in head_numbers(model, own)) for own in slots]
    structure = Structure.side_by_side([model.structure.model_copy(update={"kept_heads": heads}) for heads in kept])
    skeleton = build_skeleton(model.config.model_copy(update={"structure": structure}), model.files)
    return count_cost(skeleton).flops


def _none_suffices(candidates: Sequence[BranchCandidate], wanted: float) -> UsageError:
    possible = [candidate for candidate in candidates if candidate.disagreement is not None]
    if not possible:
        return UsageError(candidates[0].reason or "no members can be chosen", where="--branch-layer")
    best = max(possible, key=lambda candidate: candidate.disagreement or 0.0)
    return UsageError(
        f"no branch layer gives members that disagree on {wanted:g} of the inputs; the most found is "
        f"{best.disagreement:.3f}, branching at layer {best.branch_layer}",
        where="--min-disagreement",
        fix="lower it, keep fewer heads, or bound the overlap with --max-overlap",
    )
