"""The arithmetic from member logits to per-sample columns."""

from __future__ import annotations

import torch
from torch import Tensor

from compress.evaluation.binning import CALIBRATION_BINS, bin_index
from compress.transformer.uncertainty import predictive_distribution

# Sums over bins are kept as integers of this size: the result does not depend on the order of additions, which
# differs between batch sizes and between runs on an accelerator. 2^-36 is far below any reported digit, and an
# int64 holds 10^8 samples.
FIXED_POINT = float(1 << 36)


@torch.no_grad()
def reduce_logits(member_logits: Tensor, labels: Tensor | None) -> dict[str, Tensor]:
    """Reduce ``(M, B, K)`` logits, and ``(B,)`` labels if there are any, to the columns of ``Columns``, on the CPU.

    Columns that need labels or two members are left out when there are none; ``class_bin_gaps`` is ``(K · bins,)``
    int64 in units of 1 / FIXED_POINT, and ``non_finite`` is ``(B,)`` bool. Computed in float64 on the logits' device.
    """
    found = predictive_distribution(member_logits)
    columns = {
        "predicted": found.predicted,
        "confidence": found.confidence,
        "entropy": found.entropy,
        "energy": found.energy,
        "max_logit": found.max_logit,
        "member_predicted": found.member_predicted.to(torch.int32),
        "non_finite": found.non_finite,
    }
    if found.mutual_information is not None:
        columns |= {"mutual_information": found.mutual_information, "kl": _pairwise_kl(found.log_members)}
    if labels is not None:
        labels = labels.to(found.log_mean.device)
        columns |= _compare_labels(found.log_mean, found.log_mean.exp(), found.predicted, labels)
    return {name: column.cpu() for name, column in columns.items()}


def _pairwise_kl(log_members: Tensor) -> Tensor:
    """Mean of KL(p_m ‖ p_n) over the ordered pairs of at least two members, ``(B,)``."""
    members = len(log_members)
    probabilities = log_members.exp()
    # Σ_n KL(p_m ‖ p_n) = Σ_k p_m (M log p_m − Σ_n log p_n); the term n = m is 0.
    difference = members * log_members - log_members.sum(dim=0)
    terms = torch.where(probabilities > 0, probabilities * difference, 0.0)
    return (terms.sum(dim=(0, 2)) / (members * (members - 1))).clamp_(min=0.0)


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
