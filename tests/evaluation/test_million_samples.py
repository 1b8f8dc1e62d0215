"""A million samples of ten classes and three members evaluate in 2 GB, with intervals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from pathlib import Path
import torch
from compress.evaluation.intervals import bootstrap
from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.predictions import ColumnCollector, Predictions

generator, collector = torch.Generator().manual_seed(0), ColumnCollector()
for start in range(0, 1_000_000, 1000):
    labels = torch.randint(10, (1000,), generator=generator)
    logits = torch.randn(3, 1000, 10, generator=generator) + torch.nn.functional.one_hot(labels, 10)
    collector.add(logits, labels, [f"img-{row:07d}.png" for row in range(start, start + 1000)])
predictions = Predictions(collector.finish())
measured = measure(predictions, catalogue().values())
intervals = bootstrap({"m": predictions}, catalogue()).intervals["m"]
assert intervals["cls/accuracy"].contains(measured["cls/accuracy"].value)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) // 1024)  # of this program alone, which getrusage's peak is not
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's count of resident memory")
def test_peak_memory() -> None:
    run = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    assert int(run.stdout) <= 2048, f"peak memory {run.stdout} MB"
