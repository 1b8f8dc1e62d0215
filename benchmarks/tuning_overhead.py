"""What the training engine costs over a bare PyTorch loop that does the same: ``python benchmarks/tuning_overhead.py``.

Both train the same vision transformer on the same images, in turns, and the medians are compared. The bare loop has a
``DataLoader`` with the same preprocessing, AdamW, a schedule and clipping, and nothing else; the engine also checks
every loss, writes its log and saves checkpoints. Target: at most 5 % more time.
"""

from __future__ import annotations

import copy
import math
import statistics
import tempfile
import time
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from compress.backbones.registry import preprocessor
from compress.backbones.source import ModelSource
from compress.data.base import Dataset
from compress.data.builtin import digits
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.tuning.options import Tune
from compress.tuning.training import Task, train

SOURCE = ModelSource(
    adapter="timm",
    name="vit_tiny_patch16_224",
    weights="random",
    labels=tuple("0123456789"),
    arguments={"img_size": 28, "patch_size": 7, "in_chans": 1, "embed_dim": 96, "depth": 8, "num_heads": 12},
    preprocessing={"mean": [0.3], "std": [0.4], "resize": "squash", "interpolation": "bilinear"},
)


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


@click.command(help=__doc__)
@click.option("--repeats", default=7, show_default=True, help="Trainings of each kind.")
@click.option("--epochs", default=2, show_default=True, help="Passes over 1,097 images.")
@click.option("--batch-size", default=32, show_default=True)
@click.option("--workers", default=0, show_default=True, help="Data workers of the engine; the bare loop has none.")
def main(repeats: int, epochs: int, batch_size: int, workers: int) -> None:
    model, dataset = open_model(SOURCE), digits("train")
    options = Tune(epochs=epochs, batch_size=batch_size, lr=1e-4, workers=workers)
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "engine": []}
    for repeat in range(repeats + 1):
        for name, times in found.items():
            seconds = timed(name, model, dataset, options)
            if repeat:  # the first round warms up
                times.append(seconds)
    for kind, column in (("wall", 0), ("processor", 1)):
        middle = {name: statistics.median(times[column] for times in measured) for name, measured in found.items()}
        ratios = [engine[column] / bare[column] for bare, engine in zip(*found.values(), strict=True)]
        overhead = middle["engine"] / middle["bare"] - 1
        click.echo(
            f"{kind:9}  bare {middle['bare']:.2f} s, engine {middle['engine']:.2f} s, overhead of medians "
            f"{overhead:+.1%}, of each pair {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}"
        )
    click.echo(f"{torch.get_num_threads()} threads, {repeats} repeats, torch {torch.__version__}")


if __name__ == "__main__":
    main()
