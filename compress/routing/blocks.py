"""Which blocks get a router."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from compress.attention.attention import pooled_tokens
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.data.subset import even_places, take
from compress.errors import DataError, ModelError
from compress.placing import to_device
from compress.routing.options import Route
from compress.runtime import Runtime
from compress.transformer.combine import combine_logits
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.routing_config import every_block

MOST_SAMPLES = 512


def chosen_blocks(model: Transformer, options: Route, calibration: Dataset, runtime: Runtime) -> tuple[int, ...]:
    """The blocks that the options name or describe.

    Args:
        model: on the runtime's device.
        options: see ``Route``.
        calibration: labelled in the order of the model's classes; read for ``auto`` only.
        runtime: batch size of the forward passes.

    Raises:
        ModelError: there is none, no such block, or one in which a router could not learn.
    """
    layers, idle = len(model.layers), pooled_block(model)
    if not options.blocks or options.blocks == ("auto",):
        described = every_block(options.every, layers)
        if not described:
            raise ModelError(
                f"a model of {layers} distinct block has no every {options.every}-th but the last",
                where="--every",
                fix="name the blocks with --blocks",
            )
        if not options.blocks:
            return described
        costs = removal_costs(model, calibration, runtime)
        cheapest = sorted(set(range(layers)) - {idle}, key=lambda block: (costs[block], block))
        return tuple(sorted(cheapest[: len(described)]))
    blocks = tuple(int(block) for block in options.blocks)
    if blocks[-1] >= layers:
        raise ModelError(f"the model has no block {blocks[-1]}", where="--blocks", fix=f"choose among 0..{layers - 1}")
    if idle in blocks:
        raise ModelError(
            f"block {idle} is the last and runs for the pooled tokens alone, so its router would learn nothing",
            where="--blocks",
            fix="leave it out",
        )
    return blocks


def pooled_block(model: Transformer) -> int | None:
    """The block that runs for the pooled tokens alone: the last, if the model pools some and does not share it."""
    parameter = next(model.parameters())
    inputs = to_device(model.stem.example(), parameter.device, parameter.dtype)
    with torch.no_grad():
        pooled = model.embed(inputs).pooled
    last = model.order[-1]
    return last if pooled is not None and model.order.count(last) == 1 else None


def removal_costs(model: Transformer, dataset: Dataset, runtime: Runtime) -> list[float]:
    """Per block, by how much the cross-entropy grows without it, nats; the mean over at most 512 inputs.

    Args:
        model: on the runtime's device, in evaluation mode.
        dataset: labelled; a larger one is read at even steps.
        runtime: batch size.

    Raises:
        DataError: no labelled sample.
    """
    if not len(dataset) or dataset.labels is None:
        raise DataError("there is no labelled sample", where=dataset.reference, fix="give labelled data")
    part = take(dataset, even_places(len(dataset), MOST_SAMPLES))
    totals = torch.zeros(len(model.layers) + 1, dtype=torch.float64)
    for batch in batches(part, preprocessor(model), batch_size=runtime.batch_size):
        if batch.labels is None:
            continue
        inputs = to_device(batch.inputs, runtime.torch_device(), next(model.parameters()).dtype)
        without: Sequence[int | None] = (*range(len(model.layers)), None)
        with torch.inference_mode():
            for number, block in enumerate(without):
                logits = combine_logits(logits_without(model, inputs, block)).cpu().double()
                totals[number] += F.cross_entropy(logits, batch.labels, reduction="sum")
    means = totals / len(part)
    return (means[:-1] - means[-1]).tolist()


def logits_without(model: Transformer, inputs: Inputs, block: int | None) -> torch.Tensor:
    """Member logits ``(M, B, K)`` of the model when every token skips ``block``."""
    hidden = model.embed(inputs)
    for step, index in enumerate(model.order):
        if index != block:
            hidden = model.run_layers(hidden, start=step, stop=step + 1)
            continue
        if step == model.parting:
            hidden = hidden.repeated(model.structure.members)
        if step == len(model.order) - 1:
            hidden = hidden.with_states(pooled_tokens(hidden.states, hidden.pooled))
    return model.classify(hidden)
