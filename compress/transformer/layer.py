"""One transformer layer of any family: attention and MLP on a residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from compress.attention.attention import Attention, pooled_tokens
from compress.transformer.parts import Hidden
from compress.transformer.selection import Selection


class Layer(nn.Module):
    """Pre-norm (ViT, CLIP): ``x + f(norm(x))``; post-norm (BERT): ``norm(x + f(x))``.

    Args:
        attention: the project's attention.
        mlp: the family's own feed-forward module, ``(R, N, C)`` to ``(R, N, C)``.
        norm1, norm2: the normalisations of the two sub-layers.
        residual1, residual2: what the family applies to a sub-layer's output before it is added (LayerScale, DropPath).
        norm_first: pre-norm when true.

    Attributes:
        executed: ``(R,)`` int64, the tokens that passed the layer in the last forward pass, prefix tokens included;
            None when all always do.
        selection: what a router decided about the tokens in the last forward pass; None without one.
        skips_mlp: whether tokens that do not pass skip the MLP too, and not the attention alone.
    """

    executed: Tensor | None = None
    selection: Selection | None = None
    skips_mlp: bool = True

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

    def with_attention(self, attention: Attention, mlp: nn.Module | None = None) -> Layer:
        """The same layer around another attention (and MLP); everything else is shared, not copied."""
        return Layer(
            attention,
            self.mlp if mlp is None else mlp,
            self.norm1,
            self.norm2,
            residual1=self.residual1,
            residual2=self.residual2,
            norm_first=self.norm_first,
        )

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

    def selection_flops(self, tokens: int) -> int:
        """FLOPs per row of choosing which of ``tokens`` tokens pass the layer."""
        return 0

    def complete(self, hidden: Hidden, attended: Tensor, *, last: bool = False) -> Hidden:
        """Everything after the attention.

        Args:
            hidden: what the layer was given.
            attended: the attention's output, ``(R, Nq, C)``.
            last: as in ``forward``.
        """
        return hidden.with_states(self.feed_forward(self.add_attended(hidden, attended, last=last)))

    def add_attended(self, hidden: Hidden, attended: Tensor, *, last: bool = False) -> Tensor:
        """The attention sub-layer's output, ``(R, Nq, C)``; arguments as in ``complete``."""
        x = pooled_tokens(hidden.states, hidden.pooled if last else None) + self.residual1(attended)
        return x if self.norm_first else self.norm1(x)

    def feed_forward(self, states: Tensor) -> Tensor:
        """The feed-forward sub-layer, token by token, ``(R, N, C)`` to the same."""
        if self.norm_first:
            return states + self.residual2(self.mlp(self.norm2(states)))
        return self.norm2(states + self.residual2(self.mlp(states)))


class Layers(nn.ModuleList):
    """The distinct layers of a model: a list of modules that knows their type."""

    if TYPE_CHECKING:

        def __getitem__(self, index: int) -> Layer: ...  # type: ignore[override]
        def __iter__(self) -> Iterator[Layer]: ...
