"""The arithmetic from member logits to per-sample columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from compress.evaluation.binning import CALIBRATION_BINS, bin_index

# Sums over bins are kept as integers of this size: the result does not depend on the order of additions, which
# differs between batch sizes and between runs on an accelerator. 2^-36 is far below any reported digit, and an
# int64 holds 10^8 samples.
FIXED_POINT = float(1 << 36)


@torch.no_grad()
def reduce_logits(member_logits: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
    """Reduce ``(M, B, K)`` logits, and ``(B,)`` labels if there are any, to the columns of ``Columns``, on the CPU.

    Columns that need labels or two members are left out when there are none; ``class_bin_gaps`` is ``(K · bins,)``
    int64 in units of 1 / FIXED_POINT, and ``non_finite`` is ``(B,)`` bool.

    Computed in float64 on the logits' device (on the CPU where the device has no float64), so that a probability
    within 1e-16 of 1 still ranks, and logits ``[200, 0]`` with target 1 give a negative log-likelihood of 200.
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
    log_mean = log_members[0]
    if members > 1:
        # Rounding may lift a certain prediction above probability 1.
        log_mean = (log_members.logsumexp(dim=0) - math.log(members)).clamp_(max=0.0)
    mean = log_mean.exp()
    log_confidence, predicted = log_mean.max(dim=-1)
    entropy = _entropy(mean, log_mean)
    columns = {
        "predicted": predicted,
        "confidence": log_confidence.exp(),
        "entropy": entropy,
        "energy": -logits.logsumexp(dim=-1).mean(dim=0),
        "max_logit": largest.mean(dim=0),
        "member_predicted": member_predicted.to(torch.int32),
        "non_finite": non_finite,
    }
    if members > 1:
        columns |= _compare_members(log_members, entropy)
    if labels is not None:
        columns |= _compare_labels(log_mean, mean, predicted, labels.to(device))
    return {name: column.cpu() for name, column in columns.items()}


def _entropy(probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    """−Σ_k p log p over the last dimension, with 0 log 0 = 0."""
    lowest = torch.finfo(log_probabilities.dtype).min
    return 0.0 - (probabilities * log_probabilities.clamp(min=lowest)).sum(dim=-1)  # 0.0 - x: never -0.0


def _compare_members(log_members: Tensor, entropy_of_mean: Tensor) -> dict[str, Tensor]:
    """Mutual information and mean pairwise KL divergence of at least two members, ``(B,)`` each."""
    members = len(log_members)
    probabilities = log_members.exp()
    mean_entropy = _entropy(probabilities, log_members).mean(dim=0)
    # Σ_n KL(p_m ‖ p_n) = Σ_k p_m (M log p_m − Σ_n log p_n); the term n = m is 0.
    difference = members * log_members - log_members.sum(dim=0)
    terms = torch.where(probabilities > 0, probabilities * difference, 0.0)
    return {
        "mutual_information": (entropy_of_mean - mean_entropy).clamp_(min=0.0),
        "kl": (terms.sum(dim=(0, 2)) / (members * (members - 1))).clamp_(min=0.0),
    }


def _compare_labels(log_mean: Tensor, mean: Tensor, predicted: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """The columns that need labels, each ``(B,)``, and the class-wise sums ``(K · bins,)``."""
    log_target = log_mean.gather(1, labels[:, None])
    classes = log_mean.shape[1]
    columns = {
        "labels": labels,
        "correct": predicted == labels,
        "nll": 0.0 - log_target.squeeze(1),
        "brier": (mean.square().sum(dim=1) - 2 * log_target.squeeze(1).exp() + 1).clamp_(min=0.0),
        "class_bin_gaps": _class_bin_gaps(mean, labels),
    }
    if classes > 5:
        # Ties go to the lower class, as in argmax.
        earlier = torch.arange(classes, device=labels.device) < labels[:, None]
        ahead = (log_mean > log_target) | ((log_mean == log_target) & earlier)
        columns["top5_correct"] = ahead.sum(dim=1) < 5
    return columns


def _class_bin_gaps(mean: Tensor, labels: Tensor) -> Tensor:
    """Σ (p̄_k − y_k) for each class and bin of p̄_k, flat ``(K · bins,)``, int64 in units of 1 / FIXED_POINT."""
    classes = mean.shape[1]
    offsets = torch.arange(classes, device=mean.device) * CALIBRATION_BINS
    bins = bin_index(mean) + offsets
    gaps = (mean * FIXED_POINT).round_().to(torch.int64)
    gaps.scatter_add_(1, labels[:, None], torch.full_like(labels, -int(FIXED_POINT))[:, None])
    sums = torch.zeros(classes * CALIBRATION_BINS, dtype=torch.int64, device=mean.device)
    return sums.scatter_add_(0, bins.flatten(), gaps.flatten())
