"""Scores that tell out-of-distribution inputs; each is high for them."""

from __future__ import annotations

from torch import Tensor

from compress.evaluation.predictions import Columns


def max_probability(columns: Columns) -> Tensor:
    """1 − max_k p̄_k, ``(N,)`` in [0, 1). Hendrycks and Gimpel, ICLR 2017 (arXiv 1610.02136)."""
    return 1 - columns.checked(columns.confidence)


def entropy(columns: Columns) -> Tensor:
    """H(p̄) in nats, ``(N,)`` in [0, log K]."""
    return columns.checked(columns.entropy)


def mutual_information(columns: Columns) -> Tensor:
    """H(p̄) − mean_m H(p_m) in nats, ``(N,)`` in [0, log M]; needs two members. Depeweg et al., ICML 2018."""
    return columns.between_members(columns.mutual_information)


def energy(columns: Columns) -> Tensor:
    """−logsumexp of the logits, averaged over members, ``(N,)``. Liu et al., NeurIPS 2020 (arXiv 2010.03759), T = 1."""
    return columns.checked(columns.energy)


def max_logit(columns: Columns) -> Tensor:
    """−max of the logits, averaged over members, ``(N,)``. Hendrycks et al., ICML 2022 (arXiv 1911.11132)."""
    return -columns.checked(columns.max_logit)
