"""From the members' logits to one prediction."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Logits divided by a temperature, in their own dtype; a temperature of 1 leaves every bit."""
    return logits if temperature == 1 else logits / temperature


def log_mean_probabilities(log_members: Tensor) -> Tensor:
    """``log p̄`` of the members' mean probabilities from ``log p_m``: ``(M, ...)`` to ``(...)``, in the same dtype."""
    members = len(log_members)
    return log_members[0] if members == 1 else log_members.logsumexp(0) - math.log(members)


def combine_logits(member_logits: Tensor) -> Tensor:
    """Logits whose softmax is the mean of the members' probabilities.

    ``z = log p̄ + mean_m logsumexp(z_m)``, so that softmax(z) = p̄ and the logsumexp of z is the members' mean
    (energy scores keep their meaning). One member's logits come back unchanged.

    Args:
        member_logits: ``(M, B, K)``.

    Returns:
        ``(B, K)``, in the members' dtype, computed in float32 or better.
    """
    if len(member_logits) == 1:
        return member_logits[0]
    wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
    return (log_mean_probabilities(wide.log_softmax(-1)) + wide.logsumexp(-1).mean(0).unsqueeze(-1)).to(
        member_logits.dtype
    )
