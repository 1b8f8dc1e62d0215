"""An encoder of ``transformers`` taken apart: embeddings, layers on the project's attention, classifier."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from compress.attention.attention import Attention, Projection
from compress.backbones.base import Parts
from compress.backbones.hf_families import SUPPORTED, Family, HeadPaths, check_config, family_named
from compress.errors import ModelError, UnsupportedModelError
from compress.transformer.layer import Layer
from compress.transformer.parts import Head, Hidden, Inputs, Stem

EXAMPLE_LENGTH = 128
M = TypeVar("M", bound=nn.Module)


class EncoderStem(Stem):
    """The library's embeddings and, where the family has one, the projection to the width of the layers.

    Reads ``input_ids (B, N)`` and, where given, ``attention_mask``, ``token_type_ids`` and ``position_ids``; other
    entries are ignored.
    """

    prefix_tokens = 1

    def __init__(self, encoder: nn.Module, family: Family, config: PreTrainedConfig) -> None:
        super().__init__()
        self.embeddings = encoder.get_submodule("embeddings")
        # An ELECTRA whose embeddings are as wide as its layers has no projection.
        projected = family.projection in dict(encoder.named_modules())
        self.projection = encoder.get_submodule(str(family.projection)) if projected else nn.Identity()
        self.segments, self.longest_input = family.segments, family.longest_input(config)
        self.example_token = 1 if config.pad_token_id == 0 else 0

    def forward(self, inputs: Inputs) -> Hidden:
        if not isinstance(inputs, Mapping):
            raise ModelError(f"the inputs of a text model are a mapping with input_ids, not a {type(inputs).__name__}")
        tokens = inputs["input_ids"]
        if tokens.shape[1] > self.longest_input:
            raise ModelError(
                f"an input has {tokens.shape[1]} tokens, but the model has positions for {self.longest_input}",
                fix="cut the texts to preprocessing.max_length",
            )
        arguments = {"input_ids": tokens, "position_ids": inputs.get("position_ids")}
        if self.segments:
            arguments["token_type_ids"] = inputs.get("token_type_ids")
        mask = inputs.get("attention_mask")
        # The mask stays even when nothing is padded: another kernel would make a row depend on its batch mates.
        return Hidden(self.projection(self.embeddings(**arguments)), None if mask is None else mask.bool(), pooled=1)

    def example(self, batch: int = 1, length: int | None = None) -> dict[str, Tensor]:
        device = next(self.parameters()).device
        shape = (batch, length or min(EXAMPLE_LENGTH, self.longest_input))
        return {
            "input_ids": torch.full(shape, self.example_token, device=device),
            "attention_mask": torch.ones(shape, dtype=torch.long, device=device),
        }


class EncoderHead(Head):
    """``classifier(dropout(activation(dense(first token))))``."""

    per_member = ("dense", "classifier")

    def __init__(self, model: nn.Module, paths: HeadPaths) -> None:
        super().__init__()
        self.dense, self.classifier = model.get_submodule(paths.dense), model.get_submodule(paths.classifier)
        self.activation, self.dropout = paths.activation(), model.get_submodule(paths.dropout)
        self.drops_first = paths.drops_first

    def forward(self, hidden: Hidden) -> Tensor:
        first = hidden.states[:, 0]
        if self.drops_first:
            first = self.dropout(first)
        return self.classifier(self.dropout(self.activation(self.dense(first))))


def take_apart(model: PreTrainedModel) -> Parts:
    """The parts of a sequence classifier, its attentions replaced by the project's own; all else is shared with it.

    Raises:
        UnsupportedModelError: a class or a setting that the project cannot represent exactly.
    """
    family = family_named(type(model).__name__)
    check_config(model.config, family)
    encoder = model.get_submodule(family.prefix)
    layers = [_layer(block, family, f"{family.prefix}.{name}") for name, block in _blocks(encoder, family)]
    stem = EncoderStem(encoder, family, model.config)
    return Parts(stem, layers, EncoderHead(model, family.head), _order(family, model.config))


def _blocks(encoder: nn.Module, family: Family) -> list[tuple[str, nn.Module]]:
    """The distinct blocks and their names in the encoder, in the order in which they first run."""
    children = encoder.get_submodule(family.blocks).named_children()
    outer = [(f"{family.blocks}.{name}", child) for name, child in children]
    if family.inner_blocks is None:
        return outer
    return [
        (f"{group_name}.{family.inner_blocks}.{name}", block)
        for group_name, group in outer
        for name, block in group.get_submodule(family.inner_blocks).named_children()
    ]


def _order(family: Family, config: PreTrainedConfig) -> tuple[int, ...] | None:
    """ALBERT runs each group of blocks several times in a row; elsewhere every block runs once."""
    if family.inner_blocks is None:
        return None
    inner, groups, steps = config.inner_group_num, config.num_hidden_groups, config.num_hidden_layers
    if steps < groups:
        raise UnsupportedModelError(
            f"{family.name} with {groups} groups of layers for {steps} layers is not supported",
            fix="num_hidden_layers must be at least num_hidden_groups",
        )
    # The library's own expression, division included: steps that groups do not divide are rounded as there.
    runs = [int(step / (steps / groups)) for step in range(steps)]
    return tuple(group * inner + position for group in runs for position in range(inner))


def _layer(block: nn.Module, family: Family, where: str) -> Layer:
    paths = family.paths
    _require(block, family.block, where)
    attention: Any = _require(block.get_submodule(paths.attention), family.attention, f"{where}.{paths.attention}")
    linear = {
        path: _require(block.get_submodule(path), nn.Linear, f"{where}.{path}")
        for path in (paths.query, paths.key, paths.value, paths.attention_output, paths.mlp_input, paths.mlp_output)
    }
    query, key, value, output = (
        Projection(linear[path].weight, linear[path].bias)
        for path in (paths.query, paths.key, paths.value, paths.attention_output)
    )
    head_width: int = attention.attention_head_size
    heads = linear[paths.query].out_features // head_width
    own = Attention(
        linear[paths.query].in_features,
        head_width,
        [tuple(range(heads))],
        original_heads=heads,
        dropout=_dropout(block, paths.attention_dropout),
        output_dropout=_dropout(block, paths.attention_output_dropout),
        device="meta",
    ).load_projections(query, key, value, output)
    mlp = nn.Sequential(
        OrderedDict(
            input=linear[paths.mlp_input],
            activation=block.get_submodule(paths.activation),
            output=linear[paths.mlp_output],
            dropout=nn.Dropout(_dropout(block, paths.mlp_dropout)),
        )
    )
    norms = block.get_submodule(paths.attention_norm), block.get_submodule(paths.mlp_norm)
    return Layer(own, mlp, *norms, norm_first=False)


def _dropout(block: nn.Module, path: str | None) -> float:
    """The probability of a dropout module of the block; 0 where the family has none."""
    return 0.0 if path is None else cast(nn.Dropout, block.get_submodule(path)).p


def _require(module: nn.Module, expected: type[M], where: str) -> M:
    """The module, when it is of exactly the expected class: a subclass may compute something else."""
    if type(module) is not expected:
        name = type(module).__name__
        raise UnsupportedModelError(f"{name} is not supported", where=where, fix=f"supported: {SUPPORTED}")
    return cast(M, module)
