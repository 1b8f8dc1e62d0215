"""What a latency depends on besides the model."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from compress.options import Options
from compress.runtime import DType

if TYPE_CHECKING:
    import torch

_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


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
    return Environment(device=name, threads=torch.get_num_threads(), dtype=dtype, allocator=_allocator())


def _allocator() -> str:
    maps = Path("/proc/self/maps")
    loaded = maps.read_text(errors="replace") if maps.exists() else os.environ.get("LD_PRELOAD", "")
    for name in _ALLOCATORS:
        if name in loaded:
            return name
    tuned = {**_malloc_variables(), **_tunables()}
    system = "glibc" if sys.platform == "linux" else "system"
    return " ".join([system, *(f"{key}={value}" for key, value in sorted(tuned.items()))])


def _malloc_variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key.startswith("MALLOC_") and key.endswith("_")}


def _tunables() -> dict[str, str]:
    settings = (setting.partition("=") for setting in os.environ.get("GLIBC_TUNABLES", "").split(":"))
    return {key: value for key, _, value in settings if key.startswith("glibc.malloc.")}
