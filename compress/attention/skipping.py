"""Attention of chosen heads only: nothing of the other heads is computed.

Two ways to group the work, with the same result to rounding:

- by row: the projections of a row's heads are copied side by side, then used as in any attention. The copy costs as
  much as the weights are large, so the row must have tokens enough. A row is computed alone, so its result is the
  same to the last bit whatever else is in the batch.
- by head: all rows that chose a head go through its projection together. No weight is copied twice, but tokens are,
  once per head.

Under ``torch.compile`` this part runs as it is (``uncompiled``), between the compiled ones: sizes that depend on the
inputs' values would be compiled again and again.

Which is faster depends on tokens and rows: ``benchmarks/skipping_kernels.py``. For 3 of 12 heads, time over that of all
heads, by row / by head, on one core in float32: 197 tokens of width 768, 1 row: 0.28 / 0.33; 8 rows: 0.30 / 0.41; 128
tokens of width 384, 8 rows: 0.41 / 0.48; 20 tokens, 1 row: 0.46 / 1.11; 64 rows: 1.15 / 0.45.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.attention.attention import Attention, pooled_tokens

TOKENS_WORTH_A_COPY = 64
"""Tokens from which on a row's copy of its projections is cheap beside their use."""
ROWS_WORTH_GROUPING = 5
"""Rows below which heads are hardly shared."""


@dataclass(frozen=True)
class Work:
    """What is to be computed.

    Attributes:
        x: ``(R, N, C)``, member-major.
        asking: ``(R, Nq, C)``, the tokens that ask; ``x`` itself when all do.
        mask: ``(R or 1, 1 or slots, 1 or Nq, N)``, or None.
        causal: whether the kernel hides later tokens; only without a mask.
        chosen: ``(R, slots)`` bool, at least one head per row, padding never.
        gates: ``(R, slots)``, factors of the contexts.
    """

    x: Tensor
    asking: Tensor
    mask: Tensor | None
    causal: bool
    chosen: Tensor
    gates: Tensor


def attend_chosen(
    attention: Attention, x: Tensor, mask: Tensor | None, *, chosen: Tensor, gates: Tensor, pooled: int | Tensor | None
) -> Tensor:
    """The outputs ``(R, Nq, C)`` of the chosen heads.

    Args:
        attention: whose projections are used.
        x, mask, pooled: as in ``Attention.forward``.
        chosen: ``(R, slots)`` bool.
        gates: ``(R, slots)``.
    """
    work = Work(
        x,
        pooled_tokens(x, pooled),
        attention.score_mask(mask, x.shape[1], pooled, x.device),
        attention.causal and mask is None and pooled is None,
        chosen,
        gates.to(x.dtype),
    )
    rows, tokens = x.shape[:2]
    alone = x.device.type == "cpu" and (tokens >= TOKENS_WORTH_A_COPY or rows < ROWS_WORTH_GROUPING)
    return attend_by_row(attention, work) if alone else attend_by_head(attention, work)


def attend_by_row(attention: Attention, work: Work) -> Tensor:
    """Row by row, with copies of the row's projections."""
    counts = work.chosen.sum(1).tolist()
    heads = work.chosen.nonzero()[:, 1].split(counts)
    per_group = len(work.x) // attention.groups
    outputs = [_row(attention, work, row, row // per_group, own) for row, own in enumerate(heads)]
    return outputs[0].unsqueeze(0) if len(outputs) == 1 else torch.stack(outputs)


def _row(attention: Attention, work: Work, row: int, group: int, heads: Tensor) -> Tensor:
    """One row's output ``(Nq, C)``."""
    width, count = attention.head_width, len(heads)
    weight = attention.qkv.weight[group].view(3, attention.slots, -1).index_select(1, heads)
    weight = weight.view(3, count * width, attention.width)
    bias: Tensor | None = attention.qkv.bias
    if bias is not None:
        bias = bias[group].view(3, attention.slots, width).index_select(1, heads).view(3, count * width)

    def project(x: Tensor, parts: slice) -> tuple[Tensor, ...]:
        y = F.linear(x, weight[parts].flatten(0, 1), None if bias is None else bias[parts].flatten())
        return y.view(1, len(x), -1, count, width).permute(2, 0, 3, 1, 4).unbind(0)

    x, asking = work.x[row], work.asking[row]
    if work.asking is work.x:
        query, key, value = project(x, slice(0, 3))
    else:
        (query,) = project(asking, slice(0, 1))
        key, value = project(x, slice(1, 3))
    mask = work.mask
    if mask is not None:
        mask = mask[row : row + 1] if len(mask) > 1 else mask
        mask = mask if mask.shape[1] == 1 else mask[:, heads]
    context = _contexts(attention, query, key, value, mask, causal=work.causal)
    context = context.transpose(1, 2)[0] * work.gates[row, heads][:, None]
    columns = attention.output.weight[group].view(attention.width, attention.slots, width).index_select(1, heads)
    added = attention.output.bias
    return F.linear(context.flatten(1), columns.flatten(1), None if added is None else added[group])


def attend_by_head(attention: Attention, work: Work) -> Tensor:
    """Head by head, each over the rows that chose it."""
    rows, slots = work.chosen.nonzero().unbind(1)
    per_group = len(work.x) // attention.groups
    number = rows // per_group * attention.slots + slots
    order = number.argsort(stable=True)
    rows, slots = rows[order], slots[order]
    counts = number.bincount(minlength=attention.groups * attention.slots).tolist()
    parts = [(*divmod(place, attention.slots), own) for place, own in enumerate(rows.split(counts)) if len(own)]

    queries, keys, values = [], [], []
    for group, slot, own in parts:
        query, key, value = _head_projections(attention, work, group, slot, own)
        queries.append(query)
        keys.append(key)
        values.append(value)
    mask = work.mask
    if mask is not None:
        mask = mask[rows] if len(mask) > 1 else mask
        mask = mask if mask.shape[1] == 1 else mask[torch.arange(len(rows), device=mask.device), slots].unsqueeze(1)
    query, key, value = (torch.cat(part).unsqueeze(1) for part in (queries, keys, values))
    context = _contexts(attention, query, key, value, mask, causal=work.causal)[:, 0]
    context = context * work.gates[rows, slots][:, None, None]

    out = _biases(attention, work)
    for (group, slot, own), part in zip(parts, context.split([len(own) for *_, own in parts]), strict=True):
        columns = attention.output.weight[group].view(attention.width, attention.slots, -1)[:, slot]
        out = out.index_add_(0, own, F.linear(part, columns).to(out.dtype))
    return out


def _head_projections(
    attention: Attention, work: Work, group: int, slot: int, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Query ``(n, Nq, D)``, key and value ``(n, N, D)`` of one head for n rows."""
    width = attention.head_width
    weight = attention.qkv.weight[group].view(3, attention.slots, width, attention.width)[:, slot]
    bias: Tensor | None = attention.qkv.bias
    if bias is not None:
        bias = bias[group].view(3, attention.slots, width)[:, slot]

    def project(x: Tensor, parts: slice) -> tuple[Tensor, ...]:
        y = F.linear(x, weight[parts].flatten(0, 1), None if bias is None else bias[parts].flatten())
        return y.split(width, dim=-1)

    x = work.x[rows]
    if work.asking is work.x:
        query, key, value = project(x, slice(0, 3))
    else:
        (query,) = project(work.asking[rows], slice(0, 1))
        key, value = project(x, slice(1, 3))
    return query, key, value


def _contexts(
    attention: Attention, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, causal: bool
) -> Tensor:
    """The weighted sums of values, ``(rows, heads, Nq, D)``."""
    return F.scaled_dot_product_attention(
        attention.query_norm(query),
        attention.key_norm(key),
        value,
        attn_mask=mask,
        dropout_p=attention.dropout if attention.training else 0.0,
        is_causal=causal,
        scale=attention.scale,
    )


def _biases(attention: Attention, work: Work) -> Tensor:
    """The outputs before any head has added to them."""
    rows, asking = work.asking.shape[:2]
    if attention.output.bias is None:
        return work.x.new_zeros(rows, asking, attention.width)
    by_row = attention.output.bias.repeat_interleave(rows // attention.groups, dim=0)
    return by_row[:, None].to(work.x.dtype).repeat(1, asking, 1)
