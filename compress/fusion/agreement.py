"""Whether pruned copies can be fused, and what the fused model is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from compress.artifact.tensors import TensorFile
from compress.errors import ModelError
from compress.transformer.config import ModelConfig, StreamMlp, Structure
from compress.transformer.parting import parting_layer

FIX = "fuse members that were pruned from one model"


def check_members(configs: Sequence[ModelConfig], states: Sequence[TensorFile], names: Sequence[str]) -> None:
    """Compare members before any work: what they are for, the shape of every tensor, and how they are built.

    Raises:
        ModelError: naming both members, and the tensor and its shapes where these differ.
    """
    first = configs[0]
    for name, config in zip(names, configs, strict=True):
        if config.structure.members > 1:
            raise ModelError("is fused already", where=name, fix=FIX)
        if config.attached is not None:
            raise ModelError(
                f"has {config.attached}, which cannot be merged", where=name, fix="fuse first, then budget or route"
            )
        _require_same(("labels",), config, first, name, names[0])
    for name, state in zip(names[1:], states[1:], strict=True):
        _require_same_shapes(state, states[0], name, names[0])
    for name, config in zip(names, configs, strict=True):
        _require_same(("preprocessing", "backbone", "dtype", "temperature"), config, first, name, names[0])
        if config.structure.original_heads != first.structure.original_heads:
            raise ModelError(f"the heads of the original model differ from {names[0]}", where=name, fix=FIX)


def _require_same(parts: Sequence[str], config: ModelConfig, first: ModelConfig, name: str, first_name: str) -> None:
    for part in parts:
        if getattr(config, part) != getattr(first, part):
            raise ModelError(f"{part} differs from that of {first_name}", where=name, fix=FIX)


def _require_same_shapes(state: TensorFile, first: TensorFile, name: str, first_name: str) -> None:
    """Every tensor that fusing averages or stacks; those of attentions follow from the kept heads, which may differ."""
    different = sorted(set(first) ^ set(state))
    if different:
        raise ModelError(f"tensor {different[0]} is in one of {first_name} and {name} only", where=name, fix=FIX)
    for tensor in first:
        if ".attention." not in tensor and first.shape(tensor) != state.shape(tensor):
            what = f"tensor {tensor} is {state.shape(tensor)}, in {first_name} {first.shape(tensor)}"
            raise ModelError(what, where=name, fix=FIX)


def fused_config(
    configs: Sequence[ModelConfig],
    states: Sequence[Mapping[str, Tensor]],
    mlp: StreamMlp,
) -> ModelConfig:
    """The members side by side, parted where they first differ. Thresholds of abstention go: they were the members'."""
    structures = [config.structure for config in configs]
    branch = parting_layer(structures, states, own_mlp=mlp == "grouped")
    structure = Structure.side_by_side(structures, branch_layer=branch, mlp=mlp)
    return configs[0].model_copy(update={"structure": structure, "abstention": None})
