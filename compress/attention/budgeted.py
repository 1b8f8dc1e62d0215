"""Attention in which every row runs as many heads as it needs, the most relevant ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from compress.attention.attention import Attention
from compress.attention.budget_config import BudgetConfig
from compress.attention.decision import Decision
from compress.attention.head_chooser import HeadChooser
from compress.attention.random_choice import drawn_relevance
from compress.attention.skipping import attend_chosen
from compress.errors import ModelError

Gating = Literal["soft", "hard"]
FLOOR_SLACK = 1e-4
"""A budget that is this close below a whole number of heads is that number: float32 has no 0.7."""


@dataclass(frozen=True)
class BudgetLimit:
    """What a user asks for at run time.

    Attributes:
        value: a share of the heads in (0, 1].
        cap: the predicted budget counts where it is lower; else every row gets ``value``.
    """

    value: float
    cap: bool = False


class BudgetedAttention(Attention):
    """``Attention`` whose rows run k of their group's H kept heads.

    With s the predicted budget and p the softmax over heads, k = clamp(⌊s·H⌋, 1, H), the k heads of largest p run (ties
    to the lowest number), and the context of head i is multiplied by g_i = s·H·p_i. Equal p and s = 1 are the original
    attention, bit for bit.

    In training, with ``gating`` set, all heads are computed: ``soft`` uses every gate, ``hard`` those of the chosen
    heads, with the gradient of the soft ones (straight-through).

    Args:
        attention: its projections are shared, not copied.
        rule: how heads are chosen.

    Attributes:
        gating: how gradients reach predictor and scorer; None computes the chosen heads only. It counts only while
            gradients are recorded.
        temperature: of the softmax over heads.
        limit: what a user asked for at run time, or None.

    Source: BudgetFormer, arXiv 2604.22583.
    """

    def __init__(self, attention: Attention, rule: BudgetConfig) -> None:
        with torch.device("meta"):  # the weights come from the other module
            super().__init__(
                attention.width,
                attention.head_width,
                attention.kept_heads,
                original_heads=attention.original_heads,
                qkv_bias=False,
                output_bias=False,
                query_norm=attention.query_norm,
                key_norm=attention.key_norm,
                scale=attention.scale,
                causal=attention.causal,
                dropout=attention.dropout,
                output_dropout=attention.output_dropout.p,
            )
        self.qkv, self.output, self.output_dropout = attention.qkv, attention.output, attention.output_dropout
        weight = self.qkv.weight
        with torch.device(weight.device):
            self.chooser = HeadChooser(self.width, [len(heads) for heads in self.kept_heads], rule.hidden)
        self.chooser.to(weight.dtype)
        self.rule, self.temperature = rule, rule.temperature
        self.gating: Gating | None = None
        self.limit: BudgetLimit | None = None
        self.selection_flops = self.chooser.flops
        self.train(attention.training)

    def with_heads(self, kept_heads: object, device: object = None) -> Attention:
        """Refused: predictor and scorer know only the heads that they were trained with."""
        raise ModelError("the heads of a model with budgets cannot be pruned or fused", fix="prune and fuse it first")

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        gate: Tensor | None = None,
        pooled: int | Tensor | None = None,
    ) -> Tensor:
        """Attend; see ``Attention.forward``.

        Raises:
            ModelError: a row's tokens are not finite, so that no head can be chosen for it.
        """
        mean = mean_token(x, mask)
        relevance = self.chooser.relevance(mean, self.temperature)
        counts = self.chooser.head_counts(len(x))
        budget = self._budgets(mean)
        heads = executed_heads(budget.detach(), counts)
        if self.rule.choice == "random":
            # Equal factors that sum to s·H, whatever number of heads runs: near 1 each.
            drawn = drawn_relevance(mean, self.chooser.real_heads(len(x)), self.chooser.training)
            relevance = best(drawn, heads).to(relevance.dtype)
        total = relevance.sum(-1, keepdim=True)
        gates = budget[:, None] * (relevance / (total / counts[:, None]))
        training = self.gating is not None and torch.is_grad_enabled()
        dense = training or self.runs_everything
        self.decision = Decision(budget, relevance / total, heads, dense)
        if training and self.gating == "hard":
            gates = gates + (gates * best(relevance, heads) - gates).detach()
        if not training:  # where the training loop says more about it
            _check_finite(mean, gates)
        factors = gates if gate is None else gates * gate
        if dense:
            return super().forward(x, mask, gate=factors, pooled=pooled)
        chosen = best(relevance, heads)
        return self.output_dropout(_attend(self, x, mask, chosen=chosen, gates=factors, pooled=pooled))

    @property
    def runs_everything(self) -> bool:
        """Whether the user fixed the budget at 1, so that no row needs to be looked at."""
        return self.limit is not None and not self.limit.cap and self.limit.value == 1.0

    def _budgets(self, mean: Tensor) -> Tensor:
        """s of every row, ``(R,)``: predicted, fixed, or what the user asked for."""
        limit, fixed = self.limit, self.rule.fixed
        if limit is not None and not limit.cap:
            fixed = limit.value
        if fixed is None:
            budgets = self.chooser.budgets(mean)
        else:
            dtype = torch.promote_types(mean.dtype, torch.float32)
            budgets = torch.full((len(mean),), fixed, dtype=dtype, device=mean.device)
        return budgets.clamp(max=limit.value) if limit is not None and limit.cap else budgets


def _attend(attention: Attention, x: Tensor, mask: Tensor | None, **chosen: Any) -> Tensor:
    """``attend_chosen``, between the compiled parts of a model that is being compiled."""
    if torch.compiler.is_compiling():
        from compress.attention import uncompiled

        return uncompiled.attend_chosen(attention, x, mask, **chosen)
    return attend_chosen(attention, x, mask, **chosen)


def _check_finite(mean: Tensor, gates: Tensor) -> None:
    if torch.compiler.is_compiling():
        from compress.attention import uncompiled

        uncompiled.check_finite(mean, gates)
    else:
        check_finite(mean, gates)


def mean_token(x: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the real tokens, ``(R, C)`` in float32 or better; 0 for a row without any.

    Args:
        x: ``(R, N, C)``.
        mask: as in ``Attention.forward``; of a mask of pairs, a token is real when any token may attend to it.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    if mask is None:
        return x.mean(1, dtype=dtype)
    real = (mask if mask.dim() == 2 else mask.flatten(1, 2).any(1)).to(dtype)
    with torch.autocast(x.device.type, enabled=False):
        weights = real / real.sum(1, keepdim=True).clamp(min=1)
        return torch.bmm(weights.expand(len(x), -1).unsqueeze(1), x.to(dtype)).squeeze(1)


def executed_heads(budget: Tensor, counts: Tensor) -> Tensor:
    """``k = clamp(⌊s·H⌋, 1, H)``, int64, of budgets s and head counts H."""
    return (budget * counts + FLOOR_SLACK).floor().long().clamp(min=1).minimum(counts)


def best(relevance: Tensor, heads: Tensor) -> Tensor:
    """``(R, slots)`` bool, the ``heads[r]`` most relevant of each row; ties go to the lowest number."""
    order = relevance.argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(
        -1, order, torch.arange(relevance.shape[1], device=order.device).expand_as(order)
    )
    return rank < heads[:, None]


def check_finite(mean: Tensor, gates: Tensor) -> None:
    """Raise ``ModelError`` for a row whose mean token or gates are not numbers."""
    if bool((mean.sum() + gates.sum()).isfinite()):
        return
    wrong = (~(mean.isfinite().all(-1) & gates.isfinite().all(-1))).nonzero()
    if len(wrong):  # finite numbers may have an infinite sum
        raise ModelError(
            f"no heads can be chosen for row {int(wrong[0])}, whose hidden states are not finite",
            where="attention with budgets",
            fix="look for NaN or infinity in the inputs and weights",
        )
