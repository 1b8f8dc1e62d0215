"""What the chosen circuits are worth, measured again with exactly their heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compress.data.base import Dataset
from compress.pruning.masking import only, without
from compress.pruning.objectives import Losses, measure_losses
from compress.pruning.options import Objective
from compress.pruning.outcomes import masked_outcomes
from compress.pruning.selection import MemberHeads
from compress.runtime import Runtime
from compress.transformer.model import Transformer


@dataclass(frozen=True)
class LossPair:
    """Both losses of one variant of the model: mean cross-entropy in nats, and 1 − AUROC; None where not measured."""

    task: float | None
    ood: float | None

    def in_words(self) -> str:
        """Such as ``loss 0.312, OOD AUROC 0.871``."""
        task = [] if self.task is None else [f"loss {self.task:.3f}"]
        ood = [] if self.ood is None else [f"OOD AUROC {1 - self.ood:.3f}"]
        return ", ".join([*task, *ood])


@dataclass(frozen=True)
class CircuitLosses:
    """The losses around one member's circuit, over the whole calibration and foreign validation sets.

    Attributes:
        objective: what the circuit was searched by.
        kept: with the circuit's heads alone, which is the pruned member; low is good.
        masked: without them, which is what the search maximises.
        masked_without_bound: without the heads that the search found before ``max_overlap`` exchanged some.
    """

    objective: Objective
    kept: LossPair
    masked: LossPair
    masked_without_bound: LossPair


def measure_circuits(
    model: Transformer,
    chosen: MemberHeads,
    objectives: Sequence[Objective],
    calibration: Dataset,
    foreign: Dataset | None,
    runtime: Runtime,
    *,
    first_layer: int,
) -> tuple[CircuitLosses, ...]:
    """Measure the circuits of all members together.

    Args:
        model: the single model.
        chosen: heads of the members.
        objectives: of the members.
        calibration, foreign: the data of the search.
        runtime: device, number format, batch size.
        first_layer: the first layer that was searched; below it the trunk keeps all of its heads and is never masked.
    """
    trunk: list[tuple[int, ...]] = [()] * first_layer
    variants = []
    for kept, free in zip(chosen.slots, chosen.free, strict=True):
        circuits = [[*trunk, *heads[first_layer:]] for heads in (kept, free)]
        variants += [only(model, kept), *(without(model, circuit) for circuit in circuits)]
    sets = [calibration] if foreign is None else [calibration, foreign]
    outcomes = [masked_outcomes(model, data, variants, runtime, "measure circuits") for data in sets]
    pairs = _pairs(measure_losses(*outcomes), len(variants))
    return tuple(
        CircuitLosses(objective, *pairs[3 * member : 3 * member + 3]) for member, objective in enumerate(objectives)
    )


def _pairs(losses: Losses, variants: int) -> list[LossPair]:
    task = [None] * variants if losses.task is None else losses.task.tolist()
    ood = [None] * variants if losses.ood is None else losses.ood.tolist()
    return [LossPair(*pair) for pair in zip(task, ood, strict=True)]
