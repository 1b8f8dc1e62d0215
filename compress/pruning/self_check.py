"""Every pruned copy is compared with what it must equal before it is written."""

from __future__ import annotations

import torch

from compress.errors import ModelError, SelfCheckError
from compress.placing import evaluating
from compress.transformer.cost import count_parameters, head_parameters
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

TOLERANCE = 1e-5


def check_pruned(original: Transformer, pruned: Transformer, inputs: Inputs, name: str) -> float:
    """Compare a pruned copy with its original whose other heads' contexts are zeroed.

    Args:
        original: the single model that was pruned.
        pruned: the copy.
        inputs: a small batch on the models' device.
        name: the copy's name, for messages.

    Returns:
        The largest difference of logits, relative to the largest logit (at least 1).

    Raises:
        ModelError: the original's own logits are not finite.
        SelfCheckError: the logits differ by more than 1e-5 (float32; wider in narrower formats), or the number of
            parameters did not fall by what the removed heads held.
    """
    gates = []
    predicted = 0
    for before, after in zip(original.layers, pruned.layers, strict=True):
        present, kept = before.attention.kept_heads[0], set(after.attention.kept_heads[0])
        gate = torch.tensor([[float(head in kept) for head in present]])
        gates.append(gate.to(before.attention.qkv.weight.device))
        predicted += (len(present) - len(kept)) * head_parameters(before.attention)
    with evaluating(original), evaluating(pruned), torch.inference_mode():
        expected, found = original.members(inputs, gates=gates), pruned.members(inputs)
    if not bool(expected.isfinite().all()):
        raise ModelError("its logits are not finite", where="the model", fix="look for NaN or infinity in its weights")
    removed = count_parameters(original) - count_parameters(pruned)
    if removed != predicted:
        raise SelfCheckError(f"{removed} parameters were removed instead of {predicted}", where=name, fix="report this")
    scale = max(1.0, float(expected.abs().max()))
    difference = float((expected - found).abs().max()) / scale
    precision = torch.finfo(expected.dtype).eps / torch.finfo(torch.float32).eps
    if not difference <= TOLERANCE * precision:
        raise SelfCheckError(
            f"logits differ from the masked original by {difference:.1e}; nothing was written",
            where=name,
            fix="report this",
        )
    return difference
