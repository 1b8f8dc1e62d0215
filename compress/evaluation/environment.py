"""What a latency depends on besides the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from compress.allocator import allocator
from compress.options import Options
from compress.runtime import DType

if TYPE_CHECKING:
    import torch


class Environment(Options):
    """Where an evaluation ran."""

    device: str = Field(description="Name of the device.")
    threads: int = Field(ge=1, description="CPU threads of one operation.")
    dtype: DType = Field(description="Number format of the forward passes; metrics are float64.")
    allocator: str = Field(description="Memory allocator of the process, with its tuning; matters on CPU.")


def current_environment(device: torch.device, dtype: DType) -> Environment:
    """The environment of this process."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Environment(device=name, threads=torch.get_num_threads(), dtype=dtype, allocator=allocator())
