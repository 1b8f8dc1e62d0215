"""Reading a data set for forward passes without gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.placing import to_device
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs


def read(
    model: Transformer, dataset: Dataset, part: Sequence[int], runtime: Runtime
) -> Iterator[tuple[Inputs, Tensor | None]]:
    """Inputs on the runtime's device, and labels ``(B,)`` on the CPU, of the samples ``part`` in batches.

    Raises:
        DataError: the whole set is empty, or a sample cannot be read.
    """
    if len(part) == 0 and len(dataset) > 0:
        return  # one of several processes that no batch is left for
    for batch in batches(dataset, preprocessor(model), batch_size=runtime.batch_size, indices=part):
        yield to_device(batch.inputs, runtime.torch_device()), batch.labels


@contextlib.contextmanager
def computing(runtime: Runtime) -> Iterator[None]:
    """No gradients, and autocast in the runtime's number format."""
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    with torch.inference_mode(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        yield
