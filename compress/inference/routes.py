"""Which tokens of single inputs pass the routed blocks of a model, told in words and patches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from compress.backbones.base import ReadableTokens
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.errors import ModelError
from compress.options import Options
from compress.placing import to_device
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.routing import routed_layers


class BlockPass(Options):
    """What a routed block let pass."""

    block: int = Field(ge=0, description="Number of the block.")
    passed: tuple[float, ...] = Field(
        description="Per token the share of the streams in which it passes: 0 or 1 for one."
    )


class InputRoutes(Options):
    """One input on its way through the routed blocks, without padding and without the tokens before the patches."""

    id: str = Field(description="Name of the input.")
    words: tuple[str, ...] | None = Field(None, description="Text of every token; null for images.")
    grid: tuple[int, int] | None = Field(None, description="Rows and columns of the patches; null for texts.")
    blocks: tuple[BlockPass, ...] = Field(description="By block, in order; a shared layer as it ran last.")


def check_routed(model: Transformer) -> None:
    """Raise ``ModelError`` when the model has no routers."""
    if model.config.routing is None:
        raise ModelError("the model has no routers", where="--routes", fix="give it some with compress route")


def input_routes(model: Transformer, dataset: Dataset, indices: Sequence[int], runtime: Runtime) -> list[InputRoutes]:
    """Run some inputs through a routed model, one by one.

    Args:
        model: in evaluation mode, on the runtime's device and in its number format.
        dataset: of the kind that the model reads.
        indices: which samples.
        runtime: device and number format.

    Raises:
        ModelError: the model has no routers.
    """
    check_routed(model)
    preprocess, found = preprocessor(model), []
    for index in indices:
        sample = dataset[index]
        inputs = preprocess([sample.value])
        with torch.inference_mode():
            model.members(to_device(inputs, runtime.torch_device(), runtime.torch_dtype()))
        shown, words, grid = _tokens(model, inputs, preprocess)
        blocks = tuple(
            BlockPass(block=block, passed=tuple(layer.selection.passed.float().mean(0).cpu()[shown].tolist()))
            for block, layer in routed_layers(model)
            if layer.selection is not None
        )
        found.append(InputRoutes(id=sample.id, words=words, grid=grid, blocks=blocks))
    return found


def _tokens(
    model: Transformer, inputs: Inputs, preprocess: object
) -> tuple[slice, tuple[str, ...] | None, tuple[int, int] | None]:
    """Which tokens are shown, and their texts or their grid."""
    if isinstance(inputs, Tensor):
        prefix = model.stem.prefix_tokens
        selection = next(layer.selection for _, layer in routed_layers(model))
        patches = 0 if selection is None else selection.passed.shape[1] - prefix
        return slice(prefix, None), None, patch_grid((inputs.shape[2], inputs.shape[3]), patches)
    ids = inputs["input_ids"][0]
    length = int(inputs["attention_mask"].sum()) if "attention_mask" in inputs else len(ids)
    numbers = ids[:length].tolist()
    words = (
        preprocess.pieces(numbers) if isinstance(preprocess, ReadableTokens) else [f"#{number}" for number in numbers]
    )
    return slice(0, length), tuple(words), None


def patch_grid(size: tuple[int, int], patches: int) -> tuple[int, int] | None:
    """Rows and columns of so many square patches of an image of ``size`` (height, width); None if they miss some."""
    if patches < 1:
        return None
    side = round(math.sqrt(size[0] * size[1] / patches))
    grid = (size[0] // side, size[1] // side) if side else (0, 0)
    return grid if grid[0] * grid[1] == patches else None
