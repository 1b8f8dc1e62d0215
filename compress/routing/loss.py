"""What training adds for routers: their schedule, the loss of token choice, and what the log shows of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from compress.transformer.model import Transformer
from compress.transformer.router import Router
from compress.transformer.routing import routed_layers, routed_selections
from compress.transformer.selection import Selection
from compress.tuning.losses import ExtraLoss, StepOutputs


def capacity_at(step: int, steps: int, *, target: float, anneal: float) -> float:
    """The share that passes in a step of all ``steps``: falls linearly from 1.0 to the target in ``anneal`` of them."""
    falling = anneal * steps
    return target if step >= falling else 1 + (target - 1) * step / falling


class RoutingLoss(ExtraLoss):
    """See ``ExtraLoss``.

    Token choice: ``weight · (mean σ(r − τ) − c)²`` over the real tokens of each block, τ the batch's percentile and c
    the capacity; the thresholds follow the percentiles, once per optimizer step, by its last forward pass. Expert
    choice has no loss of its own. Every run of a block that several steps share counts.

    Args:
        anneal: share of the steps in which the capacity falls.
        weight: of the capacity loss.

    Source: He et al. 2024 (Router-Tuning), arXiv 2410.13184, for the loss on the capacity.
    """

    def __init__(self, anneal: float, weight: float) -> None:
        self.anneal, self.weight = anneal, weight

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        """Set the capacity of this step."""
        for _, layer in routed_layers(model):
            router = layer.router
            router.training_capacity = capacity_at(step, steps, target=router.capacity, anneal=self.anneal)

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """``route/capacity``, of token choice."""
        losses = [
            _capacity_loss(router, selection)
            for router, selections in _by_threshold(outputs.model)
            for selection in selections
        ]
        return {"route/capacity": self.weight * torch.stack(losses).mean()} if losses else {}

    def stepped(self, model: Transformer) -> None:
        """Let the thresholds of token choice follow the scores."""
        for router, selections in _by_threshold(model):
            router.learn_thresholds(selections)

    def readings(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """``route/kept`` and ``route/entropy``, and both for every block."""
        found: dict[str, list[Tensor]] = {"route/kept": [], "route/entropy": []}
        shown = {}
        for index, selections in routed_selections(outputs.model).items():
            if selections:
                for name, measure in (("kept", kept), ("entropy", entropy)):
                    value = torch.stack([measure(selection) for selection in selections]).mean()
                    found[f"route/{name}"].append(value)
                    shown[f"route/{name}/{index}"] = value
        return {name: torch.stack(values).mean() for name, values in found.items() if values} | shown


def _by_threshold(model: Transformer) -> Iterator[tuple[Router, list[Selection]]]:
    """The routers of token choice, and what each decided in its runs of the last forward pass."""
    runs = routed_selections(model)
    for index, layer in routed_layers(model):
        if layer.router.choice == "token" and runs[index]:
            yield layer.router, runs[index]


def _capacity_loss(router: Router, selection: Selection) -> Tensor:
    """The squared distance of the soft share of passing tokens from the capacity, ``()``."""
    thresholds = router.percentiles(selection.scores.detach(), selection.routed, router.training_capacity)
    rows = len(selection.scores) // router.streams
    soft = (selection.scores - thresholds.repeat_interleave(rows)[:, None]).sigmoid()
    share = (soft * selection.routed).sum() / selection.routed.sum().clamp(min=1)
    return (share - router.training_capacity).square()


def kept(selection: Selection) -> Tensor:
    """The share of the routed tokens that passed, ``()``."""
    routed = selection.routed
    return (selection.passed & routed).sum() / routed.sum().clamp(min=1)


def entropy(selection: Selection) -> Tensor:
    """How undecided the router is: mean binary entropy of σ(r) over the routed tokens, bits, ``()``; 1 when fresh."""
    share = selection.scores.detach().double().sigmoid()
    bits = (torch.special.entr(share) + torch.special.entr(1 - share)) / math.log(2)
    return ((bits * selection.routed).sum() / selection.routed.sum().clamp(min=1)).to(selection.scores.dtype)
