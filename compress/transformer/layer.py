"""One transformer layer of any family: attention and MLP on a residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from compress.attention.attention import Attention, pooled_tokens
from compress.transformer.parts import Hidden


class Layer(nn.Module):
    """Pre-norm (ViT, CLIP): ``x + f(norm(x))``; post-norm (BERT): ``norm(x + f(x))``.

    Args:
        attention: the project's attention.
        mlp: the family's own feed-forward module, ``(R, N, C)`` to ``(R, N, C)``.
        norm1, norm2: the normalisations of the two sub-layers.
        residual1, residual2: what the family applies to a sub-layer's output before it is added (LayerScale, DropPath).
        norm_first: pre-norm when true.
    """

    def __init__(
        self,
        attention: Attention,
        mlp: nn.Module,
        norm1: nn.Module,
        norm2: nn.Module,
        *,
        residual1: nn.Module | None = None,
        residual2: nn.Module | None = None,
        norm_first: bool = True,
    ) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.norm1, self.norm2 = norm1, norm2
        self.residual1, self.residual2 = residual1 or nn.Identity(), residual2 or nn.Identity()
        self.norm_first = norm_first

    def forward(self, hidden: Hidden, *, gate: Tensor | None = None, last: bool = False) -> Hidden:
        """Run the layer.

        Args:
            hidden: states ``(R, N, C)`` and masks.
            gate: factor of every head's context, ``(R or 1, heads)``.
            last: nothing but the pooled tokens is read afterwards: only they ask, and only they pass the MLP (exact).
        """
        attended = self.attention(
            self.attention_input(hidden.states), hidden.mask, gate=gate, pooled=hidden.pooled if last else None
        )
        return self.complete(hidden, attended, last=last)

    def attention_input(self, states: Tensor) -> Tensor:
        """What the attention reads, ``(R, N, C)``."""
        return self.norm1(states) if self.norm_first else states

    def complete(self, hidden: Hidden, attended: Tensor, *, last: bool = False) -> Hidden:
        """Everything after the attention.

        Args:
            hidden: what the layer was given.
            attended: the attention's output, ``(R, Nq, C)``.
            last: as in ``forward``.
        """
        x = pooled_tokens(hidden.states, hidden.pooled if last else None) + self.residual1(attended)
        if self.norm_first:
            x = x + self.residual2(self.mlp(self.norm2(x)))
        else:
            x = self.norm1(x)
            x = self.norm2(x + self.residual2(self.mlp(x)))
        return hidden.with_states(x)


class Layers(nn.ModuleList):
    """The distinct layers of a model: a list of modules that knows their type."""

    if TYPE_CHECKING:

        def __getitem__(self, index: int) -> Layer: ...  # type: ignore[override]
        def __iter__(self) -> Iterator[Layer]: ...
