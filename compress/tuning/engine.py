"""Hugging Face accelerate as the training loop uses it: one process, or several that share every batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType
from torch import Tensor

from compress.distributed import Processes, processes
from compress.errors import UsageError
from compress.runtime import Runtime

REPLICATED = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.MULTI_XPU)


@dataclass(frozen=True)
class Machine:
    """Where and with whom this process trains.

    Attributes:
        accelerator: wraps model and optimizer, runs backward passes, saves their state.
        team: the processes.
        device: of this process.
        dtype: number format of the forward passes; weights, gradients and losses are float32.
    """

    accelerator: Accelerator
    team: Processes
    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> torch.autocast:
        """The forward passes' context."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)

    def summed(self, values: Tensor) -> Tensor:
        """The sum of ``values`` over all processes."""
        return self.accelerator.reduce(values, "sum") if self.team.count > 1 else values


@contextlib.contextmanager
def machine(runtime: Runtime) -> Iterator[Machine]:
    """What a training runs on; the random state is as it was afterwards.

    accelerate fixes number format and device once per process, and a caller may train in another way next; so formats
    are left to ``Machine.autocast``, and a single process places model and batches itself.

    Raises:
        UsageError: a device or number format that cannot be trained on.
    """
    if runtime.dtype == "float16":
        raise UsageError(
            "float16 gradients underflow without loss scaling, which the engine does not do",
            where="--dtype",
            fix="use bfloat16 or float32",
        )
    device = runtime.torch_device()
    team = processes(device)
    if team.count > 1 and device.type != "cpu":
        device = torch.device(device.type, torch.accelerator.current_device_index())
    # A layer that no token entered has no gradient; without this the processes would wait for it forever.
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    accelerator = Accelerator(mixed_precision="no", device_placement=team.count > 1, kwargs_handlers=[unused])
    if accelerator.distributed_type not in REPLICATED:
        raise UsageError(
            f"{accelerator.distributed_type.value} is not supported: every process holds the whole model",
            where="accelerate's configuration",
            fix="launch with --multi_gpu, or with torchrun",
        )
    indices = [] if device.type == "cpu" else [device.index or 0]
    kind = "cuda" if device.type == "cpu" else device.type
    with torch.random.fork_rng(devices=indices, device_type=kind):
        yield Machine(accelerator, team, device, runtime.torch_dtype())
