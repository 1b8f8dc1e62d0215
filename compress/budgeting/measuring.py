"""What budgets came out: how many heads run, whether inputs differ, and what skipping costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.evaluation.input_use import head_shares
from compress.placing import frozen, to_device
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

COLLAPSED = 0.01
"""Width of the middle 90 % of the inputs' executed shares below which all get the same."""


@dataclass(frozen=True)
class Measured:
    """Budgets on a labelled set.

    Attributes:
        samples: how many.
        mean, p05, p95: executed share k/H of an input, mean over layers and streams.
        deviation: its standard deviation.
        accuracy: as the model is used, other heads skipped.
        soft_accuracy: with the gates of early training: all heads run, weighted.
    """

    samples: int
    mean: float
    p05: float
    p95: float
    deviation: float
    accuracy: float
    soft_accuracy: float

    @property
    def collapsed(self) -> bool:
        """Whether nearly all inputs get the same budget."""
        return self.p95 - self.p05 < COLLAPSED


def measure_budgets(model: Transformer, dataset: Dataset, runtime: Runtime) -> Measured:
    """Run over a labelled set, once as the model is used and once softly.

    Args:
        model: with budgets, in evaluation mode, on the runtime's device and in its number format.
        dataset: labelled, classes numbered as the model's.
        runtime: device, number format, batch size.
    """
    shares = []
    correct = soft = 0.0
    for inputs, labels in _labelled(model, dataset, runtime):
        with torch.inference_mode():
            logits = model(inputs)
        executed = head_shares(model, model.usage, len(labels))
        if executed is not None:
            shares.append(executed.mean(1))
        correct += float((logits.argmax(-1).cpu() == labels).sum())
        soft += float((_softly(model, inputs).argmax(-1).cpu() == labels).sum())
    by_input = torch.cat(shares).double()
    low, high = torch.quantile(by_input, torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
    samples = len(by_input)
    return Measured(
        samples, float(by_input.mean()), low, high, float(by_input.std(correction=0)), correct / samples, soft / samples
    )


def _softly(model: Transformer, inputs: Inputs) -> Tensor:
    """Logits with all heads weighted."""
    attentions = [attention for _, attention in budgeted_attentions(model)]
    before = [attention.gating for attention in attentions]
    try:
        for attention in attentions:
            attention.gating = "soft"
        with frozen(model), torch.enable_grad():  # nothing asks for a gradient; gates count only while they could
            return model(inputs).detach()
    finally:
        for attention, gating in zip(attentions, before, strict=True):
            attention.gating = gating


def _labelled(model: Transformer, dataset: Dataset, runtime: Runtime) -> Iterator[tuple[Inputs, Tensor]]:
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    for batch in batches(dataset, preprocessor(model), batch_size=runtime.batch_size):
        if batch.labels is not None:
            yield to_device(batch.inputs, device, dtype), batch.labels
