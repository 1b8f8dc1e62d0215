"""Peak memory of a forward pass."""

from __future__ import annotations

import ctypes
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

REPEATS = 3
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


class UnmeasurableError(Exception):
    """This system does not tell; the message is the reason a user reads."""


def peak_memory(call: Callable[[], object], model: nn.Module, device: torch.device) -> int:
    """Bytes that a model needs: its weights, and what a forward pass adds at its peak.

    On CUDA the addition is exact: what torch's allocator has handed out. On the CPU it is the growth of the process's
    resident memory, from the peak that Linux keeps: the pass is warm, memory that the C library holds back is returned
    first, the peak is reset, and the median of three passes counts. That includes what libraries below torch allocate;
    it is coarse below a megabyte, and other threads of the process disturb it. Weights that several parts share
    count once.

    Args:
        call: the forward pass on prepared inputs.
        model: whose weights count.
        device: where it computes.

    Raises:
        UnmeasurableError: another device, another system, or a C library that does not return memory.
    """
    if device.type == "cuda":
        growth = _cuda_growth(call, device)
    elif device.type == "cpu":
        growth = _resident_growth(call)
    else:
        raise UnmeasurableError(f"the peak memory of {device.type} is not known")
    return weight_bytes(model) + growth


def weight_bytes(model: nn.Module) -> int:
    """Bytes of the distinct parameters and buffers."""
    tensors = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())


def _cuda_growth(call: Callable[[], object], device: torch.device) -> int:
    call()
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _resident_growth(call: Callable[[], object]) -> int:
    if not sys.platform.startswith("linux"):
        raise UnmeasurableError("peak memory on the CPU is measured on Linux only")
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        raise UnmeasurableError("the C library is not glibc, so memory that it holds back would hide the peak")
    grown = []
    try:
        for _ in range(REPEATS):
            call()
            trim(0)
            RESET.write_text(RESET_PEAK)
            before = _status("VmRSS")
            call()
            grown.append(_status("VmHWM") - before)
    except OSError as error:
        raise UnmeasurableError(f"the system does not let the peak be reset ({error.strerror})") from None
    return max(0, round(statistics.median(grown)))


def _status(key: str) -> int:
    """An entry of the process's status, bytes."""
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise UnmeasurableError(f"the system does not report {key}")
