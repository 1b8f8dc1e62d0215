"""What a circuit is searched by: how much worse a model is without its heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compress.evaluation.metrics.detection import detect
from compress.evaluation.metrics.ood_auroc import ood_auroc
from compress.pruning.options import Objective
from compress.pruning.outcomes import Outcomes


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of V variants of a model; an objective that was not measured is None.

    Attributes:
        task: mean cross-entropy of the calibration set, in nats, ``(V,)`` float64.
        ood: 1 − AUROC of telling the foreign validation set from the calibration set by the maximum probability,
            ``(V,)`` float64; 0 is perfect, 0.5 is chance.
    """

    task: Tensor | None
    ood: Tensor | None

    def ranking(self, objective: Objective) -> Tensor:
        """What the highest losses are looked for in, ``(V,)`` float64.

        The two losses have different units, so ``avg`` is the mean of their ranks; tied losses share their mean rank.

        Raises:
            ValueError: the objective needs a loss that was not measured.
        """
        found = {"task": [self.task], "ood": [self.ood], "avg": [self.task, self.ood]}[objective]
        losses = [loss for loss in found if loss is not None]
        if len(losses) < len(found):
            raise ValueError(f"the losses of objective {objective} were not measured")
        if objective != "avg":
            return losses[0]
        from scipy.stats import rankdata  # importing it takes more than a second, and few objectives need it

        return torch.stack([torch.from_numpy(rankdata(loss.numpy())) for loss in losses]).mean(0)

    def importance(self, objective: Objective) -> Tensor:
        """The ranking above its lowest value, ``(V,)`` float32: at least 0, and higher means keep."""
        ranking = self.ranking(objective)
        return (ranking - ranking.min()).float()


class NonFiniteVariantError(ArithmeticError):
    """A variant's answer is not finite; ``variant`` is its position."""

    def __init__(self, variant: int) -> None:
        super().__init__(f"variant {variant} is not finite")
        self.variant = variant


def measure_losses(calibration: Outcomes, foreign: Outcomes | None = None) -> Losses:
    """The losses of every variant.

    The detection is that of ``compress eval``: exact over all thresholds, ties counted by half. It uses no labels.

    Args:
        calibration: answers to the calibration set.
        foreign: answers of the same variants to the foreign validation set.

    Raises:
        NonFiniteVariantError: an answer is not a number, or a loss infinite.
    """
    for outcomes in (calibration, foreign):
        for answers in () if outcomes is None else (outcomes.confidence, outcomes.cross_entropy):
            bad = [] if answers is None else torch.nonzero(~torch.isfinite(answers).all(1)).flatten().tolist()
            if bad:
                raise NonFiniteVariantError(bad[0])
    task = None if calibration.cross_entropy is None else calibration.cross_entropy.mean(1)
    if foreign is None:
        return Losses(task, None)
    pairs = zip(1 - calibration.confidence, 1 - foreign.confidence, strict=True)
    return Losses(task, torch.stack([1 - ood_auroc(detect(inside, outside)) for inside, outside in pairs]))
