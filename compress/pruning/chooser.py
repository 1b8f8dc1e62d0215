"""What the prune stage asks of a method: heads for some options, and scores to keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compress.pruning.circuit_losses import CircuitLosses
from compress.pruning.options import Prune
from compress.pruning.scores import HeadScores, save_scores
from compress.pruning.selection import MemberHeads, select


class MemberChooser(Protocol):
    """Chooses the heads of every member; asked once, or once per branch layer when that is to be found."""

    @property
    def chooses_freely(self) -> bool:
        """Whether another branch layer costs nothing, because the same scores serve for all."""
        ...

    @property
    def data(self) -> str | None:
        """Fingerprint of the calibration set behind the choice."""
        ...

    def choose(self, options: Prune) -> MemberHeads:
        """The heads; ``options.branch_layer`` is a number. Raises ``UsageError`` for what is impossible."""
        ...

    def measure(self, chosen: MemberHeads, options: Prune) -> tuple[CircuitLosses, ...]:
        """The losses of the chosen heads, per member; nothing for methods that have no objective."""
        ...

    def save(self, path: Path) -> None:
        """Write the scores behind the last choice."""
        ...

    def finished(self) -> None:
        """The members are written: what an interrupted run would continue from may go."""
        ...


@dataclass(frozen=True, eq=False)
class ScoreChooser:
    """Chooses by one table of scores (Taylor, magnitude, random)."""

    scores: HeadScores
    chooses_freely: bool = True

    @property
    def data(self) -> str | None:
        """See ``MemberChooser``."""
        return self.scores.data

    def choose(self, options: Prune) -> MemberHeads:
        """See ``MemberChooser``."""
        return select(self.scores, options)

    def measure(self, chosen: MemberHeads, options: Prune) -> tuple[CircuitLosses, ...]:
        """See ``MemberChooser``."""
        return ()

    def save(self, path: Path) -> None:
        """See ``MemberChooser``."""
        save_scores(self.scores, path)

    def finished(self) -> None:
        """See ``MemberChooser``."""
