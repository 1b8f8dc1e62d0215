"""What a model is, without its weights: the content of an artifact's ``config.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from compress.attention.budget_config import BudgetConfig
from compress.data.preprocessing import Preprocessing
from compress.options import Options
from compress.runtime import DType
from compress.transformer.routing_config import RoutingConfig

FORMAT_VERSION = 1

StreamMlp = Literal["averaged", "grouped"]
"""Whether the streams of a fused model share one MLP per layer or each has its own."""

UncertaintyScore = Literal["max_probability", "entropy", "mutual_information", "energy", "max_logit"]
"""How uncertain a prediction is; the scores of ``compress.transformer.uncertainty``."""


class BackboneConfig(Options):
    """Enough to rebuild the skeleton of the original model without a network."""

    adapter: str = Field(description="Name in the registry of adapters.")
    architecture: str = Field(description="The family's own name of the architecture.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="The family's own arguments (JSON).")

    @field_validator("arguments")
    @classmethod
    def _as_stored(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """As JSON gives them back, so that a saved configuration equals the one in memory."""
        plain: dict[str, Any] = json.loads(json.dumps(arguments))
        return plain


class Structure(Options):
    """Which heads the model keeps and where its members part.

    ``kept_heads[layer][group]`` lists the heads, by their number in the original model, in ascending order. A layer
    below ``branch_layer`` has one group; from ``branch_layer`` on there is one group per member.
    """

    original_heads: tuple[int, ...] = Field(description="Heads per layer of the original model.")
    kept_heads: tuple[tuple[tuple[int, ...], ...], ...] = Field(
        description="Per layer and group, the kept heads by their number in the original model, ascending."
    )
    members: int = Field(1, ge=1, description="M, the streams from the branch layer on.")
    branch_layer: int = Field(0, ge=0, description="First layer with M streams; below it there is one.")
    mlp: StreamMlp = Field("averaged", description="Whether the streams share one MLP per layer or each has its own.")

    @model_validator(mode="after")
    def _consistent(self) -> Structure:
        layers = len(self.original_heads)
        if len(self.kept_heads) != layers:
            raise ValueError(f"kept_heads lists {len(self.kept_heads)} layers, original_heads {layers}")
        if not 0 <= self.branch_layer <= layers:
            raise ValueError(f"branch_layer {self.branch_layer} is outside 0..{layers}")
        for layer, (groups, total) in enumerate(zip(self.kept_heads, self.original_heads, strict=True)):
            expected = self.members if layer >= self.branch_layer else 1
            if len(groups) != expected:
                raise ValueError(f"layer {layer} has {len(groups)} groups of heads, expected {expected}")
            for heads in groups:
                if not heads or list(heads) != sorted(set(heads)) or heads[0] < 0 or heads[-1] >= total:
                    raise ValueError(
                        f"layer {layer}: heads {list(heads)} must be distinct, ascending, within 0..{total - 1}"
                    )
        return self

    @classmethod
    def original(cls, heads_per_layer: tuple[int, ...]) -> Structure:
        """The structure of an unpruned single model."""
        kept = tuple((tuple(range(heads)),) for heads in heads_per_layer)
        return cls(original_heads=heads_per_layer, kept_heads=kept)

    @classmethod
    def side_by_side(
        cls,
        members: Sequence[Structure],
        *,
        branch_layer: int | None = None,
        mlp: StreamMlp = "averaged",
    ) -> Structure:
        """The structure of one model that holds separate members of the same original.

        Args:
            members: single models.
            branch_layer: where the streams part; None for the first layer in which the members' heads differ.
            mlp: see ``mlp``.
        """
        heads = [
            [structure.kept_heads[layer][0] for structure in members] for layer in range(len(members[0].kept_heads))
        ]
        if branch_layer is None:
            branch_layer = next((layer for layer, own in enumerate(heads) if len(set(own)) > 1), len(heads))
        return cls(
            original_heads=members[0].original_heads,
            kept_heads=tuple(tuple(own if layer >= branch_layer else own[:1]) for layer, own in enumerate(heads)),
            members=len(members),
            branch_layer=branch_layer if len(members) > 1 else 0,
            mlp=mlp,
        )


class Abstention(Options):
    """An input whose score exceeds the threshold is one that the model should not decide.

    The threshold belongs to the exact weights, heads and temperature that it was fitted with.
    """

    score: UncertaintyScore = Field(
        description="The score; high for uncertain inputs. max_probability is 1 minus the probability, "
        "max_logit minus the logit."
    )
    threshold: float = Field(allow_inf_nan=False, description="Inputs with a higher score are abstained from.")
    target: Literal["coverage", "risk"] = Field(
        description="What it was fitted to: a share of inputs that are answered, or a share of errors among these."
    )
    value: float = Field(ge=0, le=1, description="The share.")

    @property
    def rule(self) -> str:
        """The rule in words; scores that are one minus a probability, or minus a logit, are named as these."""
        limit = self.threshold
        if self.score == "max_probability":
            # A limit so near to 1 that four digits would round it away.
            shown = f"1 - {limit:.2g}" if 0 < limit < 1e-4 else f"{1 - limit:.4g}"
            return f"abstains when the probability is below {shown}"
        if self.score == "max_logit":
            return f"abstains when the largest logit is below {-limit:.4g}"
        return f"abstains when the {self.score.replace('_', ' ')} is above {limit:.4g}"


class ModelConfig(Options):
    """The content of ``config.json``."""

    format_version: int = Field(FORMAT_VERSION, description="Version of this file's format.")
    backbone: BackboneConfig = Field(description="The original model, without its weights.")
    structure: Structure = Field(description="What was kept, and where members part.")
    labels: tuple[str, ...] = Field(min_length=1, description="Class names, in the order of the logits.")
    preprocessing: Preprocessing = Field(discriminator="kind", description="From a raw sample to the model's input.")
    temperature: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Every member's logits are divided by it; see the stage calibrate."
    )
    abstention: Abstention | None = Field(None, description="When to abstain; none before it was fitted.")
    budget: BudgetConfig | None = Field(
        None, description="How many heads run for an input, and which; without it all do."
    )
    routing: RoutingConfig | None = Field(
        None, description="Routers in front of some blocks; none when all tokens pass."
    )
    dtype: DType = Field("float32", description="Number format of the weights.")

    @property
    def attached(self) -> str | None:
        """What was attached to the layers and would not survive a change of their heads, in words; None for nothing."""
        found = [name for name, part in (("budgets", self.budget), ("routers", self.routing)) if part is not None]
        return " and ".join(found) or None
