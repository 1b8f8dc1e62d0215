"""What the training engine costs over a bare PyTorch loop that does the same: ``python benchmarks/tuning_overhead.py``.

Both train the same vision transformer on the same images, in turns, and the medians are compared. The bare loop has a
``DataLoader`` with the same preprocessing, AdamW, a schedule and clipping, and nothing else; the engine also checks
every loss, writes its log and saves checkpoints. Target: at most 5 % more time. What the engine adds to a step does not
grow with the model: ``--model tiny`` (0.9 million parameters, 17 tokens) is about the worst case, ``small`` is a
ViT-S/16 on 96 pixels. On a machine whose speed changes from turn to turn the last line says more: how long one training
takes beside its own forward and backward passes, clipping and optimizer steps.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch.utils.data import DataLoader

from compress.allocator import keep_memory
from compress.backbones.registry import preprocessor
from compress.backbones.source import ModelSource
from compress.data.base import Dataset
from compress.data.sequence import PixelArray, SequenceDataset
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.loop import Loop
from compress.tuning.options import Tune
from compress.tuning.training import Task, train

MODELS = {
    "tiny": {"img_size": 28, "patch_size": 7, "in_chans": 1, "embed_dim": 96, "depth": 8, "num_heads": 12},
    "small": {"img_size": 96, "patch_size": 16, "in_chans": 1, "embed_dim": 384, "depth": 12, "num_heads": 6},
}
CLASSES = tuple("0123456789")


def new_model(name: str) -> Transformer:
    """Random weights."""
    preprocessing = {"mean": [0.3], "std": [0.4], "resize": "squash", "interpolation": "bilinear"}
    source = ModelSource(
        adapter="timm",
        name="vit_tiny_patch16_224",
        weights="random",
        labels=CLASSES,
        arguments=MODELS[name],
        preprocessing=preprocessing,
    )
    return open_model(source)


def noise(count: int, edge: int) -> SequenceDataset:
    """Grey images; the classes go round."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, edge, edge), dtype=np.uint8)
    return SequenceDataset(PixelArray(pixels), "image", class_names=CLASSES, labels=[row % 10 for row in range(count)])


def bare(model: Transformer, dataset: Dataset, options: Tune) -> None:
    """The loop that one would write by hand."""
    preprocess = preprocessor(model)

    def collate(indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        samples = [dataset[index] for index in indices]
        return preprocess([sample.value for sample in samples]), torch.tensor([sample.label for sample in samples])

    loader = DataLoader(range(len(dataset)), batch_size=options.batch_size, shuffle=True, collate_fn=collate)  # type: ignore[arg-type, var-annotated]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, fused=True)
    steps = options.epochs * math.ceil(len(dataset) / options.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    for _ in range(options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            schedule.step()


def timed(name: str, model: Transformer, dataset: Dataset, options: Tune) -> tuple[float, float]:
    """Wall and processor seconds of one training."""
    model = copy.deepcopy(model)
    wall, processor = time.perf_counter(), time.process_time()
    if name == "bare":
        bare(model, dataset, options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            train(model, Task(dataset), options, Runtime(device="cpu"), folder=Path(folder))
    return time.perf_counter() - wall, time.process_time() - processor


class Stopwatch:
    """Wall seconds within calls of what it is put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, timed."""

        def timed_work(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return work(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start

        return timed_work


def beside_the_steps(model: Transformer, dataset: Dataset, options: Tune) -> float:
    """What one training takes beside its passes, clipping and steps, as a share of them."""
    watch = Stopwatch()
    with contextlib.ExitStack() as stack:
        for owner, name in (
            (Loop, "_forward"),
            (Accelerator, "backward"),
            (Accelerator, "clip_grad_norm_"),
            (AcceleratedOptimizer, "step"),
        ):
            stack.enter_context(mock.patch.object(owner, name, watch.around(getattr(owner, name))))
        whole, _ = timed("engine", model, dataset, options)
    return whole / watch.seconds - 1


@click.command(help=__doc__)
@click.option("--model", "size", type=click.Choice(list(MODELS)), default="tiny", show_default=True)
@click.option("--images", "count", default=1024, show_default=True, help="Images of an epoch.")
@click.option("--repeats", default=7, show_default=True, help="Trainings of each kind.")
@click.option("--epochs", default=2, show_default=True, help="Passes over the images.")
@click.option("--batch-size", default=32, show_default=True)
@click.option("--threads", default=2, show_default=True, help="CPU threads of one operation.")
@click.option("--workers", default=0, show_default=True, help="Data workers of the engine; the bare loop has none.")
def main(size: str, count: int, repeats: int, epochs: int, batch_size: int, threads: int, workers: int) -> None:
    keep_memory()
    torch.set_num_threads(threads)
    model, dataset = new_model(size), noise(count, MODELS[size]["img_size"])
    options = Tune(epochs=epochs, batch_size=batch_size, lr=1e-4, workers=workers)
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "engine": []}
    beside = []
    for repeat in range(repeats + 1):
        for name, times in found.items():
            seconds = timed(name, model, dataset, options)
            if repeat:  # the first round warms up
                times.append(seconds)
        beside.append(beside_the_steps(model, dataset, options))
    for kind, column in (("wall", 0), ("processor", 1)):
        middle = {name: statistics.median(times[column] for times in measured) for name, measured in found.items()}
        ratios = [engine[column] / bare[column] for bare, engine in zip(*found.values(), strict=True)]
        overhead = middle["engine"] / middle["bare"] - 1
        click.echo(
            f"{kind:9}  bare {middle['bare']:.2f} s, engine {middle['engine']:.2f} s, overhead of medians "
            f"{overhead:+.1%}, of each pair {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}"
        )
    shares = ", ".join(f"{share:.1%}" for share in sorted(beside))
    click.echo(f"engine beside its own passes and steps: {statistics.median(beside):.1%} of them ({shares})")
    click.echo(
        f"{size}, {threads} threads, {repeats} repeats, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
