"""Inputs on which a file is compared with its model, and the comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.errors import SelfCheckError
from compress.exporting.graph import MASK, OUTPUTS, InferenceGraph
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

TOLERANCE = 1e-4
BATCH_SIZES = (1, 2, 5)
SENTENCES = (
    "It was good.",
    "The second half drags, but nobody in the audience seemed to mind, and the ending makes up for all of it.",
    "No.",
    "A film about a lighthouse, told by the light.",
    "Seats were cold and the sound was worse; we left before the end.",
)

Answer = Callable[[Inputs], Mapping[str, Tensor]]


def trial_batches(model: Transformer) -> list[Inputs]:
    """A batch of each of ``BATCH_SIZES``: noise, or sentences of several lengths as the model's tokenizer gives them.

    In the last batch of texts, the last row is padding from end to end, as servers fill up a batch.
    """
    if model.config.preprocessing.kind == "image":
        return [model.stem.probe(size) for size in BATCH_SIZES]
    prepare = preprocessor(model)
    batches = [prepare(SENTENCES[:size]) for size in BATCH_SIZES]
    last = batches[-1]
    if isinstance(last, Mapping) and MASK in last:
        mask = last[MASK].clone()
        mask[-1] = 0
        batches[-1] = {**last, MASK: mask}
    return batches


def agreement(model: Transformer, answer: Answer, batches: Sequence[Inputs], where: Path) -> float:
    """The largest difference between a file's answers and the model's.

    That of the logits is in units of the largest logit of the batch, where this is more than 1.

    Args:
        model: on the CPU, in float32.
        answer: runs the file.
        batches: inputs.
        where: the file, for the message.

    Raises:
        SelfCheckError: a difference above 1e-4, or an answer that is not finite.
    """
    reference, largest = InferenceGraph(model).eval(), 0.0
    for inputs in batches:
        with torch.inference_mode():
            expected = reference(inputs)
        found = answer(inputs)
        for name in OUTPUTS:
            scale = max(1.0, float(expected[name].abs().max()))
            difference = float((found[name] - expected[name]).abs().max()) / scale
            if not difference <= TOLERANCE:  # NaN compares false
                raise SelfCheckError(
                    f"the file's {name} differ from the model's by {difference:.1e} in a batch of "
                    f"{len(expected[name])}, so it was not kept",
                    where=str(where),
                    fix="report it, with the versions of torch and onnxruntime",
                )
            largest = max(largest, difference)
    return largest
