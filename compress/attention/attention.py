"""Multi-head self-attention of several member groups, each with its own subset of the original heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.attention.decision import Decision
from compress.attention.grouped import GroupedLinear

Heads = tuple[int, ...]


@dataclass(frozen=True)
class Projection:
    """Weight ``(out, in)`` and bias ``(out,)`` of one of the original projections."""

    weight: Tensor
    bias: Tensor | None


def pooled_tokens(states: Tensor, pooled: int | Tensor | None) -> Tensor:
    """The tokens that the pooling will read.

    Args:
        states: ``(R, N, C)``.
        pooled: a count n for the first n tokens, an index ``(R,)`` for one token per row, or None for all tokens.
    """
    if pooled is None:
        return states
    if isinstance(pooled, int):
        return states[:, :pooled]
    return states[torch.arange(states.shape[0], device=states.device), pooled].unsqueeze(1)


class Attention(nn.Module):
    """Self-attention over member-major rows ``(G·B, N, C)`` in which group ``g`` runs the heads ``kept_heads[g]``.

    Groups with fewer heads than the largest are padded with zero projections: such a head's values and its rows of the
    output projection are zero, so it adds nothing and receives no gradient.

    Args:
        width: C.
        head_width: D of one head; it stays what it was in the original model, whatever is pruned.
        kept_heads: per group, the kept heads by their number in the original model, ascending.
        original_heads: H of the original layer.
        qkv_bias: whether query, key and value add a bias.
        output_bias: whether the output projection adds a bias.
        query_norm, key_norm: modules applied to queries and keys per head (``(R, H, N, D)``), or None.
        scale: factor of the scores; None means D^-0.5.
        causal: token i attends to tokens 0..i only.
        dropout: probability of dropping an attention weight, in training.
        output_dropout: dropout after the output projection, in training.
        device: where the weights are made; ``meta`` when they are about to be replaced, which saves filling them.

    Attributes:
        decision: what the last forward pass decided about every row; None when it always runs all heads.
    """

    decision: Decision | None = None
    selection_flops: int = 0
    """FLOPs per row of choosing the heads to run."""

    def __init__(
        self,
        width: int,
        head_width: int,
        kept_heads: Sequence[Heads],
        *,
        original_heads: int,
        qkv_bias: bool = True,
        output_bias: bool = True,
        query_norm: nn.Module | None = None,
        key_norm: nn.Module | None = None,
        scale: float | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        output_dropout: float = 0.0,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.width, self.head_width, self.original_heads = width, head_width, original_heads
        self.kept_heads: tuple[Heads, ...] = tuple(tuple(heads) for heads in kept_heads)
        self.groups = len(self.kept_heads)
        self.slots = max(len(heads) for heads in self.kept_heads)
        self.scale, self.causal, self.dropout = scale, causal, dropout
        self.qkv = GroupedLinear(self.groups, width, 3 * self.slots * head_width, qkv_bias, device)
        self.output = GroupedLinear(self.groups, self.slots * head_width, width, output_bias, device)
        self.query_norm = query_norm or nn.Identity()
        self.key_norm = key_norm or nn.Identity()
        self.output_dropout = nn.Dropout(output_dropout)

    @property
    def executed(self) -> Tensor | None:
        """``(R,)`` int64, the heads that ran per row in the last forward pass; None when it always runs all."""
        return None if self.decision is None else self.decision.heads

    def load_projections(self, query: Projection, key: Projection, value: Projection, output: Projection) -> Attention:
        """Fill a single-group module that keeps all heads from the original projections, and return it.

        Args:
            query, key, value: weights ``(H·D, C)``.
            output: weight ``(C, H·D)``.
        """
        self.qkv.weight = nn.Parameter(torch.cat([query.weight, key.weight, value.weight]).detach().unsqueeze(0))
        self.output.weight = nn.Parameter(output.weight.detach().clone().unsqueeze(0))
        if query.bias is not None and key.bias is not None and value.bias is not None:
            self.qkv.bias = nn.Parameter(torch.cat([query.bias, key.bias, value.bias]).detach().unsqueeze(0))
        if output.bias is not None:
            self.output.bias = nn.Parameter(output.bias.detach().clone().unsqueeze(0))
        return self

    def with_heads(self, kept_heads: Sequence[Heads], device: torch.device | str | None = None) -> Attention:
        """An attention of the same kind for other groups and heads, with zero weights, by default where this one is."""
        return Attention(
            self.width,
            self.head_width,
            kept_heads,
            original_heads=self.original_heads,
            qkv_bias=self.qkv.bias is not None,
            output_bias=self.output.bias is not None,
            query_norm=self.query_norm,
            key_norm=self.key_norm,
            scale=self.scale,
            causal=self.causal,
            dropout=self.dropout,
            output_dropout=self.output_dropout.p,
            device=self.qkv.weight.device if device is None else device,
        )

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        gate: Tensor | None = None,
        pooled: int | Tensor | None = None,
    ) -> Tensor:
        """Attend.

        Args:
            x: ``(G·B, N, C)``.
            mask: True where a token may be attended to: ``(R, N)`` real tokens, or ``(R, 1 | H, N, N)``. A row that may
                attend to nothing has a zero context and finite gradients.
            gate: factor of every head's context, ``(R, slots)`` or ``(1, slots)``.
            pooled: only these tokens ask (see ``pooled_tokens``); None for all.

        Returns:
            ``(G·B, Nq, C)``, Nq the number of asking tokens.
        """
        context = self.context(x, mask, pooled=pooled)
        if gate is not None:
            context = context * gate[:, None, :, None].to(context.dtype)
        return self.output_dropout(self.project(context))

    def context(self, x: Tensor, mask: Tensor | None = None, *, pooled: int | Tensor | None = None) -> Tensor:
        """Every head's weighted sum of values, ``(G·B, Nq, slots, D)``; arguments as in ``forward``."""
        query, key, value = self._project(x, pooled)
        query, key = self.query_norm(query), self.key_norm(key)
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=self.score_mask(mask, x.shape[1], pooled, x.device),
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal and mask is None and pooled is None,
            scale=self.scale,
        ).transpose(1, 2)

    def project(self, context: Tensor) -> Tensor:
        """The output projection of contexts ``(G·B, Nq, slots, D)``, ``(G·B, Nq, C)``."""
        return self.output(context.flatten(2))

    def contributions(self, context: Tensor, slots: slice = slice(None)) -> Tensor:
        """What single heads add to the output: contexts times the heads' own columns of the projection, without bias.

        The output without head h is ``project(context) − contributions(context)[h]``.

        Args:
            context: of a single group, ``(R, Nq, slots, D)``.
            slots: which heads.

        Returns:
            ``(heads, R, Nq, C)``.

        Raises:
            ValueError: the module has several groups.
        """
        if self.groups != 1:
            raise ValueError(f"contributions of {self.groups} groups of heads")
        columns = self.output.weight[0].view(self.width, self.slots, self.head_width)[:, slots]
        return torch.einsum("rqhd,chd->hrqc", context[:, :, slots], columns)

    def _project(self, x: Tensor, pooled: int | Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries ``(R, H, Nq, D)``, keys and values ``(R, H, N, D)``: views; the kernel reads strided operands."""
        if pooled is None:
            query, key, value = self._by_head(self.qkv(x), 3)
        else:
            inner = self.slots * self.head_width
            (query,) = self._by_head(self.qkv(pooled_tokens(x, pooled), slice(0, inner)), 1)
            key, value = self._by_head(self.qkv(x, slice(inner, 3 * inner)), 2)
        return query, key, value

    def _by_head(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        """``(R, N, parts·H·D)`` to ``parts`` tensors ``(R, H, N, D)``."""
        split = projected.view(*projected.shape[:2], parts, self.slots, self.head_width)
        return split.permute(2, 0, 3, 1, 4).unbind(0)

    def score_mask(
        self, mask: Tensor | None, tokens: int, pooled: int | Tensor | None, device: torch.device
    ) -> Tensor | None:
        """The boolean mask ``(R, 1, Nq, N)`` of padding and causality, or None when nothing but causality hides.

        Args:
            mask, pooled: as in ``forward``.
            tokens: N.
            device: where the mask is to be.
        """
        if mask is not None and mask.dim() == 2:
            mask = mask[:, None, None, :]
        elif mask is not None and pooled is not None:
            mask = pooled_tokens(mask.expand(-1, -1, tokens, -1).transpose(1, 2), pooled).transpose(1, 2)
        if not self.causal or (mask is None and pooled is None):
            return mask  # causality alone is left to the kernel
        causal = torch.ones(tokens, tokens, dtype=torch.bool, device=device).tril()
        if isinstance(pooled, int):
            causal = causal[:pooled]
        seen = causal[pooled][:, None, None, :] if isinstance(pooled, Tensor) else causal[None, None]
        return seen if mask is None else mask & seen

    def extra_repr(self) -> str:
        kept = ", ".join(f"{len(heads)}/{self.original_heads}" for heads in self.kept_heads)
        return f"heads=[{kept}], head_width={self.head_width}"
