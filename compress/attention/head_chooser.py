"""From the mean of an input's tokens to its budget and to the relevance of every head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.attention.grouped import GroupedLinear

FRESH_LOGIT = 3.0
"""Where a fresh predictor starts: s = 0.95, all heads but for the floor. Nearer to 1 the sigmoid has no gradient."""
LOGIT_SCALE = 4.0
"""Factor of the predictor's last layer: budgets move as fast as training needs while its weights move slowly."""


class HeadChooser(nn.Module):
    """A budget predictor (two-layer FFN, sigmoid) and a head scorer (linear, softmax) per group of heads.

    Rows are member-major, as everywhere. Both compute in float32 or better whatever the format of the weights: a
    rounded budget would be another number of heads.

    Args:
        width: C.
        counts: heads per group; slots beyond a group's count are padding and are never chosen.
        hidden: width of the predictor's hidden layer.

    Attributes:
        rate_factor: its learning rate in units of the model's.

    Source: BudgetFormer, arXiv 2604.22583.
    """

    rate_factor: float = 1.0

    def __init__(self, width: int, counts: Sequence[int], hidden: int) -> None:
        super().__init__()
        self.counts = tuple(counts)
        groups, slots = len(self.counts), max(self.counts)
        self.hidden = GroupedLinear(groups, width, hidden)
        self.budget = GroupedLinear(groups, hidden, 1)
        self.scorer = GroupedLinear(groups, width, slots)

    @property
    def flops(self) -> int:
        """FLOPs per row."""
        linear = (self.hidden, self.budget, self.scorer)
        return sum(2 * module.in_features * module.out_features for module in linear)

    def start(self, generator: torch.Generator) -> None:
        """Fresh weights: every input gets nearly all heads, all equally relevant.

        Args:
            generator: on the CPU, draws the hidden layer of the predictor.
        """
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.zero_()
            noise = torch.randn(self.hidden.weight.shape, generator=generator)
            self.hidden.weight.copy_(noise / self.hidden.in_features**0.5)
            if self.budget.bias is not None:
                self.budget.bias.fill_(FRESH_LOGIT / LOGIT_SCALE)

    def shift(self, logits: float) -> None:
        """Add a number to the logit of every budget."""
        with torch.no_grad():
            if self.budget.bias is not None:
                self.budget.bias.add_(logits / LOGIT_SCALE)

    def budgets(self, pooled: Tensor) -> Tensor:
        """s in (0, 1), ``(R,)``, of means ``(R, C)``."""
        logits = LOGIT_SCALE * _wide(self.budget, F.gelu(_wide(self.hidden, pooled)))
        return logits.squeeze(-1).sigmoid()

    def relevance(self, pooled: Tensor, temperature: float) -> Tensor:
        """``(R, slots)``, proportional to the softmax over a row's heads; the largest is 1, padding is 0.

        Left unnormalised, because x / mean(x) is exactly 1 for equal heads, which H · softmax(x) is not.
        """
        scores = _wide(self.scorer, pooled) / temperature
        if min(self.counts) < max(self.counts):
            scores = scores.masked_fill(~self.real_heads(len(pooled)), -torch.inf)
        return (scores - scores.amax(-1, keepdim=True)).exp()

    def real_heads(self, rows: int) -> Tensor:
        """``(R, slots)``, False for padding."""
        counts = self.head_counts(rows)
        return torch.arange(max(self.counts), device=counts.device) < counts[:, None]

    def head_counts(self, rows: int) -> Tensor:
        """``(R,)`` int64, the heads of each row's group."""
        counts = torch.tensor(self.counts, device=self.scorer.weight.device)
        return counts.repeat_interleave(rows // len(self.counts))

    def extra_repr(self) -> str:
        return f"heads={list(self.counts)}"


def _wide(linear: GroupedLinear, x: Tensor) -> Tensor:
    """The layer in float32 or better, outside of any autocast; rows ``(R, in)`` to ``(R, out)``.

    Every row is a product of its own: in one product of all rows, the rounding of one would depend on how many there
    are, and with it, at a whole number of heads, its budget.
    """
    dtype = torch.promote_types(linear.weight.dtype, torch.float32)
    with torch.autocast(x.device.type, enabled=False):
        by_group = x.to(dtype).chunk(linear.groups)
        columns = linear.weight.to(dtype).transpose(1, 2)
        products = [
            torch.bmm(rows.unsqueeze(1), own.expand(len(rows), -1, -1))
            for rows, own in zip(by_group, columns, strict=True)
        ]
        y = torch.cat(products).squeeze(1)
        if linear.bias is not None:
            y = y + linear.bias.to(dtype).repeat_interleave(len(x) // linear.groups, dim=0)
    return y
