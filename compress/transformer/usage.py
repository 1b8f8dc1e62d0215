"""What one forward pass executed, input by input."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from compress.attention.decision import Decision
from compress.transformer.layer import Layer
from compress.transformer.selection import Selection


@dataclass(frozen=True, eq=False)
class Usage:
    """Heads and tokens of every step that ran, for B inputs.

    A layer that several steps share (ALBERT) has an entry per step. An entry is None where everything ran.

    Attributes:
        heads: per step ``(streams, B)`` int64, the heads that were computed; streams is 1 in the trunk and M from the
            branch layer on.
        tokens: per step ``(streams, B)`` int64, the tokens that passed the layer, prefix tokens included.
        decisions: per step, what the attention decided, with gradients in training; rows are member-major.
        selections: per step, what the router decided; likewise.
    """

    heads: tuple[Tensor | None, ...]
    tokens: tuple[Tensor | None, ...]
    decisions: tuple[Decision | None, ...]
    selections: tuple[Selection | None, ...]

    @property
    def partial(self) -> bool:
        """Whether any layer could leave something out."""
        return any(entry is not None for entry in (*self.heads, *self.tokens))


@dataclass
class UsageRecord:
    """Takes in what each step left on its layer."""

    heads: list[Tensor | None] = field(default_factory=list)
    tokens: list[Tensor | None] = field(default_factory=list)
    decisions: list[Decision | None] = field(default_factory=list)
    selections: list[Selection | None] = field(default_factory=list)

    def add(self, layer: Layer, streams: int) -> None:
        """Note what ``layer`` executed in the step that just ran with ``streams`` rows per input."""
        self.heads.append(_by_stream(layer.attention.executed, streams))
        self.tokens.append(_by_stream(layer.executed, streams))
        self.decisions.append(layer.attention.decision)
        self.selections.append(layer.selection)

    def finish(self) -> Usage | None:
        """The usage; None when every layer executed everything."""
        usage = Usage(tuple(self.heads), tuple(self.tokens), tuple(self.decisions), tuple(self.selections))
        return usage if usage.partial else None


def _by_stream(rows: Tensor | None, streams: int) -> Tensor | None:
    return None if rows is None else rows.detach().view(streams, -1)
