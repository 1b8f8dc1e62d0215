"""What memory that glibc keeps saves: ``python benchmarks/allocation.py``.

``eval``, ``tune`` and ``bench`` do the same work in processes of their own, with glibc as it comes and with
``compress.allocator.keep_memory``, in turns: a ViT-S/16 at 224 pixels and batch 32, whose larger activations are above
the 32 MiB that glibc maps and unmaps one by one. The processor time of the system is that of page faults.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import torch

from compress.allocator import allocator, keep_memory
from compress.backbones.registry import ADAPTERS
from compress.backbones.source import ModelSource
from compress.benching.bench import bench
from compress.benching.options import Bench
from compress.data.sequence import PixelArray, SequenceDataset
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.options import Tune
from compress.tuning.tune import tune

BATCH, IMAGES = 32, 64
RUNTIME = Runtime(device="cpu", batch_size=BATCH)
SOURCE = ModelSource(adapter="timm", name="vit_small_patch16_224", arguments={"num_classes": 10})


def dataset() -> SequenceDataset:
    """Images of noise; the classes go round."""
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, 224, 224, 3), dtype=np.uint8)
    names = tuple(str(number) for number in range(10))
    labels = [row % 10 for row in range(IMAGES)]
    return SequenceDataset(PixelArray(pixels), "image", class_names=names, labels=labels)


def evaluated(model: Transformer) -> None:
    """Metrics and latency."""
    evaluate({"vit": model}, data=dataset(), options=Evaluate(intervals=False, memory=False), runtime=RUNTIME)


def tuned(model: Transformer) -> None:
    """One epoch."""
    with tempfile.TemporaryDirectory() as folder:
        tune(model, Path(folder) / "tuned", data=dataset(), options=Tune(epochs=1, batch_size=BATCH), runtime=RUNTIME)


def benched(model: Transformer) -> None:
    """The baselines and one fused model."""
    options = Bench(keep=2, branch_layer=(9,), batch=(BATCH,), repeats=3, warmup=1, separate=False, memory=False)
    bench(model, options=options)


WORK: dict[str, Callable[[Transformer], None]] = {"eval": evaluated, "tune": tuned, "bench": benched}


def child(work: str, *, keep: bool) -> None:
    """Do one kind of work, and print what it took."""
    if keep:
        keep_memory()
    model = ADAPTERS["timm"].untrained(SOURCE)
    before, clock = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    WORK[work](model)
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "wall": time.perf_counter() - clock,
                "user": after.ru_utime - before.ru_utime,
                "system": after.ru_stime - before.ru_stime,
                "faults": after.ru_minflt - before.ru_minflt,
                "peak": after.ru_maxrss * 1024,
                "allocator": allocator(),
            }
        )
    )


def measured(work: str, *, keep: bool, threads: int) -> dict[str, float]:
    """The figures of ``child`` in a fresh process."""
    command = [sys.executable, __file__, "--work", work, "--keep" if keep else "--no-keep", "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@click.command()
@click.option("--work", type=click.Choice(list(WORK)), help="Do this in this process, and print JSON.")
@click.option("--keep/--no-keep", default=True, help="For --work: whether memory is kept.")
@click.option("--repeats", default=3, show_default=True, help="Turns; the median counts.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of one operation.")
def main(work: str | None, keep: bool, repeats: int, threads: int) -> None:
    """Measure all three, and print a table."""
    torch.set_num_threads(threads)
    if work is not None:
        child(work, keep=keep)
        return
    click.echo(f"load {os.getloadavg()[0]:.1f}, {threads} threads, medians of {repeats}")
    click.echo(f"{'':6} {'memory':8} {'wall s':>8} {'user s':>8} {'system s':>9} {'page faults':>12} {'peak MB':>8}")
    for name in WORK:
        found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(repeats):
            for kept in found:
                found[kept].append(measured(name, keep=kept, threads=threads))
        for kept, runs in found.items():
            wall, user, system, faults, peak = (
                statistics.median(run[key] for run in runs) for key in ("wall", "user", "system", "faults", "peak")
            )
            click.echo(
                f"{name:6} {'kept' if kept else 'as it is':8} {wall:8.1f} {user:8.1f} {system:9.1f} "
                f"{faults:12,.0f} {peak / 1e6:8,.0f}"
            )


if __name__ == "__main__":
    main()
