"""From the members' logits to one prediction."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def combine_logits(member_logits: Tensor) -> Tensor:
    """Logits whose softmax is the mean of the members' probabilities.

    ``z = log p̄ + mean_m logsumexp(z_m)``, so that softmax(z) = p̄ and the logsumexp of z is the members' mean
    (energy scores keep their meaning). One member's logits come back unchanged.

    Args:
        member_logits: ``(M, B, K)``.

    Returns:
        ``(B, K)``, in the members' dtype, computed in float32 or better.
    """
    members = member_logits.shape[0]
    if members == 1:
        return member_logits[0]
    wide = member_logits.to(torch.promote_types(member_logits.dtype, torch.float32))
    log_mean = torch.logsumexp(wide.log_softmax(-1), dim=0) - math.log(members)
    return (log_mean + wide.logsumexp(-1).mean(0).unsqueeze(-1)).to(member_logits.dtype)
