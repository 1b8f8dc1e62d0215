"""Options of the ``route`` stage. Importing this imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from compress.transformer.routing_config import Choice, Part
from compress.tuning.options import Training

Block = Annotated[int, Field(ge=0)] | Literal["auto"]


class Route(Training):
    """Give a model Mixture-of-Depths routers, and train it with them."""

    capacity: tuple[float, ...] = Field(
        (0.5,), min_length=1, description="Share of the tokens that passes: one for all blocks, or one per block."
    )
    choice: Choice = Field(
        "expert",
        description="expert: the highest-ranked tokens of every input pass; token: those above a learned threshold do; "
        "random: as expert, ranked by a fixed random vector and without a gate, to compare with.",
    )
    part: Part = Field("block", description="What the other tokens skip: the whole block, or its attention only.")
    every: int = Field(2, ge=1, description="Route every n-th block, counted back from the last but one.")
    blocks: tuple[Block, ...] = Field(
        (),
        description="Blocks to route instead, by number; auto: as many as with every, those whose removal costs least.",
    )
    train: Literal["all", "router"] = Field(
        "all", description="What is trained: the whole model, or the routers alone."
    )
    anneal: float = Field(
        0.5, ge=0.0, le=1.0, description="Share of the steps in which the capacity falls from 1.0 to its target."
    )
    capacity_weight: float = Field(
        0.1, ge=0.0, allow_inf_nan=False, description="Weight of the loss that holds token choice to its capacity."
    )

    @field_validator("capacity", "blocks", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        """``0.5`` is short for ``[0.5]``, and ``auto`` for ``[auto]``."""
        return (value,) if isinstance(value, (int, float, str)) else value

    @field_validator("capacity")
    @classmethod
    def _shares(cls, capacity: tuple[float, ...]) -> tuple[float, ...]:
        for share in capacity:
            if not 0 < share <= 1:
                raise ValueError(f"the capacity {share} must be above 0 and at most 1")
        return capacity

    @field_validator("blocks")
    @classmethod
    def _distinct(cls, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        if "auto" in blocks and len(blocks) > 1:
            raise ValueError("auto chooses all blocks; give it alone")
        if len(set(blocks)) != len(blocks):
            raise ValueError("a block is named twice")
        return blocks

    @model_validator(mode="after")
    def _one_capacity_per_block(self) -> Route:
        """Blocks in ascending order, and with them the capacities that were given for each."""
        named = [block for block in self.blocks if block != "auto"]
        if len(self.capacity) > 1 and len(self.capacity) != len(named):
            raise ValueError(f"{len(self.capacity)} capacities for {len(named)} named blocks; give one for all")
        places = sorted(range(len(named)), key=named.__getitem__)
        if named:
            object.__setattr__(self, "blocks", tuple(named[place] for place in places))
        if len(self.capacity) > 1:
            object.__setattr__(self, "capacity", tuple(self.capacity[place] for place in places))
        return self
