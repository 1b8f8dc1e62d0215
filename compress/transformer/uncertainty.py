"""What the members' logits say together: the class, how probable it is, and how uncertain that is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from compress.errors import ModelError
from compress.transformer.combine import log_mean_probabilities
from compress.transformer.config import UncertaintyScore


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """The predictions of M members for B inputs of K classes, in float64; p̄ is the mean of the members' probabilities.

    Attributes:
        log_members: ``(M, B, K)``, log p_m.
        log_mean: ``(B, K)``, log p̄.
        predicted: ``(B,)`` int64, argmax of p̄ (ties to the lowest class).
        member_predicted: ``(M, B)`` int64, each member's class.
        confidence: ``(B,)``, max of p̄.
        entropy: ``(B,)``, H(p̄) in nats.
        mutual_information: ``(B,)``, H(p̄) − mean_m H(p_m) in nats; None for a single member.
        energy: ``(B,)``, mean over members of −logsumexp(logits).
        max_logit: ``(B,)``, mean over members of the largest logit.
        non_finite: ``(B,)`` bool, inputs with a NaN or infinite logit; everything else about them means nothing.
    """

    log_members: Tensor
    log_mean: Tensor
    predicted: Tensor
    member_predicted: Tensor
    confidence: Tensor
    entropy: Tensor
    mutual_information: Tensor | None
    energy: Tensor
    max_logit: Tensor
    non_finite: Tensor

    def score(self, name: UncertaintyScore) -> Tensor:
        """How uncertain each prediction is, ``(B,)``; high for uncertain inputs.

        Raises:
            ModelError: mutual information of a single member.
        """
        if name == "mutual_information":
            if self.mutual_information is None:
                raise ModelError(
                    "a single model has no mutual information", fix="choose another score, or fuse several members"
                )
            return self.mutual_information
        return {
            "max_probability": 1 - self.confidence,
            "entropy": self.entropy,
            "energy": self.energy,
            "max_logit": -self.max_logit,
        }[name]


@torch.no_grad()
def predictive_distribution(member_logits: Tensor) -> PredictiveDistribution:
    """From the members' logits ``(M, B, K)``, of any floating dtype, to what they say together.

    Computed in float64 on the logits' device (on the CPU where the device has no float64), so that a probability
    within 1e-16 of 1 still ranks, and logits ``[200, 0]`` give the second class a log-probability of −200.

    Source: Depeweg et al., ICML 2018, for the mutual information; Liu et al., NeurIPS 2020 (arXiv 2010.03759), for the
    energy.
    """
    device = torch.device("cpu") if member_logits.device.type == "mps" else member_logits.device
    logits = member_logits.to(device).to(torch.float64)
    largest, member_predicted = logits.max(dim=-1)
    # The maximum shows every defect: NaN propagates, +inf wins, and -inf means that all logits are -inf.
    non_finite = ~largest.isfinite().all(dim=0)
    if non_finite.any():
        logits = logits.masked_fill(non_finite[None, :, None], 0.0)
    log_members = logits.log_softmax(dim=-1)
    members = len(logits)
    log_mean = log_mean_probabilities(log_members)
    if members > 1:
        log_mean.clamp_(max=0.0)  # rounding may lift a certain prediction above probability 1
    log_confidence, predicted = log_mean.max(dim=-1)
    entropy = _entropy(log_mean)
    information = (entropy - _entropy(log_members).mean(dim=0)).clamp_(min=0.0) if members > 1 else None
    return PredictiveDistribution(
        log_members=log_members,
        log_mean=log_mean,
        predicted=predicted,
        member_predicted=member_predicted,
        confidence=log_confidence.exp(),
        entropy=entropy,
        mutual_information=information,
        energy=-logits.logsumexp(dim=-1).mean(dim=0),
        max_logit=largest.mean(dim=0),
        non_finite=non_finite,
    )


def _entropy(log_probabilities: Tensor) -> Tensor:
    """−Σ_k p log p over the last dimension, with 0 log 0 = 0."""
    lowest = torch.finfo(log_probabilities.dtype).min
    return 0.0 - (log_probabilities.exp() * log_probabilities.clamp(min=lowest)).sum(dim=-1)  # 0.0 - x: never -0.0
