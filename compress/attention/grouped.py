"""Linear layers of several members side by side."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GroupedLinear(nn.Module):
    """One linear layer per group, run as a single batched matrix product.

    Rows are member-major: of an input ``(G·B, ..., in)``, rows ``[g·B : (g+1)·B]`` belong to group ``g``.
    The weight is ``(G, out, in)``, each slice laid out as in ``nn.Linear``: the product then reads both operands
    along their contiguous axis, which CPUs without bf16 matrix units need (a ``(G, in, out)`` bf16 weight measured
    14 times slower there).

    Args:
        groups: number of groups G.
        in_features: width of the input.
        out_features: width of the output.
        bias: whether each group adds a bias ``(G, out)``.
        device: where the weights, which are zeros, are made; ``meta`` for weights that are about to be replaced.

    Source: grouped fully-connected layers of Hydra Ensembles, arXiv 2510.18358, section 3.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        groups: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.groups, self.in_features, self.out_features = groups, in_features, out_features
        self.weight = nn.Parameter(torch.zeros(groups, out_features, in_features, device=device))
        zeros = torch.zeros(groups, out_features, device=device) if bias else None
        self.register_parameter("bias", None if zeros is None else nn.Parameter(zeros))

    def forward(self, x: Tensor, outputs: slice | None = None) -> Tensor:
        """Map ``(G·B, ..., in)`` to ``(G·B, ..., out)``, or to the output features ``outputs`` only."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if outputs is not None:
            weight, bias = weight[:, outputs], None if bias is None else bias[:, outputs]
        if self.groups == 1:
            return F.linear(x, weight[0], None if bias is None else bias[0])
        rows = x.reshape(self.groups, -1, self.in_features)
        if bias is None:
            y = torch.bmm(rows, weight.transpose(1, 2))
        else:
            y = torch.baddbmm(bias.unsqueeze(1), rows, weight.transpose(1, 2))
        return y.view(*x.shape[:-1], y.shape[-1])

    def extra_repr(self) -> str:
        return f"groups={self.groups}, in={self.in_features}, out={self.out_features}, bias={self.bias is not None}"
