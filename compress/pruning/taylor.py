"""First-order Taylor importance of attention heads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.distributed import processes
from compress.errors import DataError, ModelError
from compress.placing import evaluating, frozen, to_device
from compress.progress import progress
from compress.runtime import Runtime
from compress.transformer.combine import combine_logits
from compress.transformer.model import Transformer


def taylor_samples(model: Transformer, dataset: Dataset, runtime: Runtime) -> tuple[Tensor, ...]:
    """``I_(l,h)(x) = |dL(x)/dξ_(l,h)|`` for every sample x, with a gate ξ = 1 on every head's context vector.

    One backward pass per batch gives per-sample values, because the gates have a batch axis. Parameters need no
    gradient and get none, whether they are frozen or not, in training or in evaluation mode. Autocast in
    ``runtime.dtype``; the loss is float32. Several processes share the batches; each gets the scores of all samples.

    Args:
        model: a single model (M = 1).
        dataset: the labelled calibration set, its classes numbered as the model's.
        runtime: device, number format, batch size.

    Returns:
        Per distinct layer ``(S, n_l)`` float32. A shared layer (ALBERT) has one gate for all its uses.

    Raises:
        ModelError: the loss does not reach some layers.

    Source: Michel et al. 2019 (arXiv 1905.10650), equation 2; Molchanov et al. 2019.
    """
    team = processes(runtime.torch_device())
    part = team.part(len(dataset), runtime.batch_size)
    parts = team.together(lambda: _score(model, dataset, part, runtime) if part or team.is_main else [])
    return tuple(torch.cat(layer) for layer in zip(*(batch for found in parts for batch in found), strict=True))


def _score(model: Transformer, dataset: Dataset, part: Sequence[int], runtime: Runtime) -> list[list[Tensor]]:
    """Per batch of the samples ``part`` and per layer, ``(B, n_l)``."""
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    model = model.to(device)
    total = -(-len(part) // runtime.batch_size)
    found: list[list[Tensor]] = []
    autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
    with evaluating(model), frozen(model), torch.inference_mode(False), torch.enable_grad():
        steps = batches(dataset, preprocessor(model), batch_size=runtime.batch_size, indices=part)
        for batch in progress(steps, "score heads", total):
            if batch.labels is None:
                raise DataError(
                    "the data are unlabelled", where=dataset.reference, fix="use a labelled calibration set"
                )
            inputs, labels = to_device(batch.inputs, device), batch.labels.to(device)
            gates = [torch.ones(len(labels), layer.attention.slots, device=device) for layer in model.layers]
            for gate in gates:
                gate.requires_grad_()
            with autocast:
                logits = combine_logits(model.members(inputs, gates=gates))
            loss = F.cross_entropy(logits.float(), labels, reduction="sum")
            found.append([gradient.abs().float().cpu() for gradient in _gradients(loss, gates)])
    return found


def _gradients(loss: Tensor, gates: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The gradient of every gate; raises ``ModelError`` naming the layers that the loss does not reach."""
    found = torch.autograd.grad(loss, gates, allow_unused=True) if loss.requires_grad else (None,) * len(gates)
    missing = [layer for layer, gradient in enumerate(found) if gradient is None]
    if missing:
        raise ModelError(f"the loss has no gradient in layers {missing}", fix="let the loss depend on every layer")
    return tuple(gradient for gradient in found if gradient is not None)
