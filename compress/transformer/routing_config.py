"""Which blocks of a model have a router, and what the routers do: a part of ``config.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from compress.options import Options

Choice = Literal["expert", "token", "random"]
Part = Literal["block", "attention"]


class RoutingConfig(Options):
    """Mixture-of-Depths routers in front of some blocks."""

    blocks: tuple[int, ...] = Field(min_length=1, description="Numbers of the routed layers, ascending.")
    capacity: tuple[float, ...] = Field(
        min_length=1, description="Share of the tokens that passes: one for all blocks, or one per block."
    )
    choice: Choice = Field(
        "expert",
        description="expert: the highest-ranked tokens of every input pass; token: those above a learned threshold do; "
        "random: as expert, ranked by a fixed random vector and without a gate, to compare with.",
    )
    part: Part = Field("block", description="What the other tokens skip: the whole block, or its attention only.")

    @model_validator(mode="after")
    def _consistent(self) -> RoutingConfig:
        if list(self.blocks) != sorted(set(self.blocks)) or self.blocks[0] < 0:
            raise ValueError(f"blocks {list(self.blocks)} must be distinct, ascending and not negative")
        if len(self.capacity) not in (1, len(self.blocks)):
            raise ValueError(
                f"{len(self.capacity)} capacities for {len(self.blocks)} blocks; give one, or one per block"
            )
        if not all(0 < capacity <= 1 for capacity in self.capacity):
            raise ValueError(f"capacities {list(self.capacity)} must be above 0 and at most 1")
        return self

    def capacity_of(self, block: int) -> float:
        """The share of tokens that passes block number ``block`` of the model."""
        return self.capacity[0] if len(self.capacity) == 1 else self.capacity[self.blocks.index(block)]


def every_block(every: int, layers: int) -> tuple[int, ...]:
    """Every ``every``-th of ``layers`` blocks, counted back from the last but one.

    The last block runs in most models for the pooled tokens alone, which always pass: a router there has nothing to
    save and nothing to learn from.
    """
    return tuple(range(layers - 2, -1, -every))[::-1]
