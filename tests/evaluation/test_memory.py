from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from compress.evaluation import memory
from compress.evaluation.memory import UnmeasurableError, peak_memory, weight_bytes

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
CPU = torch.device("cpu")
MB = 10**6


MEASURED = """
import torch
from torch import nn
from compress.evaluation.memory import peak_memory, weight_bytes

for width in (2_000, 8_000):
    model = nn.Sequential(nn.Linear(500, width), nn.GELU(), nn.Linear(width, 2)).eval()
    inputs = torch.randn(1_000, 500)
    with torch.inference_mode():
        found = peak_memory(lambda: model(inputs), model, torch.device("cpu"))
    print(found - weight_bytes(model))
"""


@ON_LINUX
def test_weights_and_the_largest_activations() -> None:
    """In a process of its own: in one that has run other tests, memory that they left may be used again."""
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    # Both sides of the activation function are in memory at once.
    expected = [2 * 1_000 * width * 4 for width in (2_000, 8_000)]
    assert [int(line) for line in done.stdout.split()] == pytest.approx(expected, rel=0.15)


@ON_LINUX
def test_what_was_allocated_before_does_not_hide_the_peak() -> None:
    model = nn.Identity()
    for _ in range(2):
        torch.zeros(30 * MB // 4)
        found = peak_memory(lambda: torch.zeros(20 * MB // 4), model, CPU)
        assert found == pytest.approx(20 * MB, rel=0.1)


def test_shared_weights_count_once() -> None:
    shared = nn.Linear(10, 10, bias=False)
    assert weight_bytes(nn.Sequential(shared, shared)) == 400
    tied = nn.Sequential(shared, nn.Linear(10, 10, bias=False).half())
    assert weight_bytes(tied) == 600
    normed = nn.BatchNorm1d(4)
    assert weight_bytes(normed) == 4 * 4 * 4 + 8


def test_where_it_cannot_be_measured_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = nn.Identity()
    with pytest.raises(UnmeasurableError, match="meta"):
        peak_memory(lambda: None, model, torch.device("meta"))
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    with pytest.raises(UnmeasurableError, match="on Linux only"):
        peak_memory(lambda: None, model, CPU)
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())
    with pytest.raises(UnmeasurableError, match="not glibc"):
        peak_memory(lambda: None, model, CPU)


@ON_LINUX
def test_a_refused_reset_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def write_text(self, text: str) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(memory, "RESET", Refusing())
    with pytest.raises(UnmeasurableError, match="does not let the peak be reset \\(Permission denied\\)"):
        peak_memory(lambda: None, nn.Identity(), CPU)
