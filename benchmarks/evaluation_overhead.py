"""What an evaluation costs over the bare forward passes: ``python benchmarks/evaluation_overhead.py``.

10,000 images go through the same vision transformer in several ways, in turns: the forward passes alone, on inputs that
are in memory already; a loop that also reads and preprocesses each batch, as whoever runs a model must; and
``evaluate`` without bootstrap, with its metrics, FLOPs and fingerprint. Target: at most 5 % more time than the forward
passes. On a machine whose speed changes from turn to turn, the last line says more: how long one evaluation takes
beside its own forward passes. The model is small, 30 MFLOPs an image; with a larger one the share is smaller.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import torch

from compress.allocator import keep_memory
from compress.backbones.registry import preprocessor
from compress.backbones.source import ModelSource
from compress.data.batches import batches
from compress.data.sequence import PixelArray, SequenceDataset
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

SOURCE = ModelSource(
    adapter="timm",
    name="vit_tiny_patch16_224",
    weights="random",
    labels=tuple("0123456789"),
    arguments={"img_size": 28, "patch_size": 7, "in_chans": 1, "embed_dim": 96, "depth": 8, "num_heads": 12},
    preprocessing={"mean": [0.3], "std": [0.4], "resize": "squash", "interpolation": "bilinear"},
)
CPU = Runtime(device="cpu")


def images(count: int) -> SequenceDataset:
    """Grey noise of 28 x 28 pixels; the classes go round. A new data set each time: its fingerprint is not known."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = [row % 10 for row in range(count)]
    return SequenceDataset(PixelArray(pixels), "image", class_names=tuple("0123456789"), labels=labels)


def forward_only(model: Transformer, prepared: list[torch.Tensor]) -> None:
    """The forward passes."""
    with torch.inference_mode():
        for batch in prepared:
            model(batch)


def loop(model: Transformer, dataset: SequenceDataset) -> None:
    """Read, preprocess, predict."""
    with torch.inference_mode():
        for batch in batches(dataset, preprocessor(model), batch_size=CPU.batch_size):
            model(batch.inputs)


def evaluated(model: Transformer, dataset: SequenceDataset, *, costs: bool) -> None:
    """The evaluation; with ``costs`` latency and peak memory are measured too, as by default."""
    options = Evaluate(intervals=False, latency=costs, memory=costs)
    evaluate({"m": model}, data=dataset, options=options, runtime=CPU)


def seconds(work: Callable[[], None]) -> tuple[float, float]:
    """Wall and processor seconds of a call."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


class Stopwatch:
    """Wall seconds within the forward passes of a model, which it takes the place of in ``members``."""

    def __init__(self, model: Transformer) -> None:
        self.seconds, self._members = 0.0, model.members

    def __call__(self, inputs: Inputs, **options: Any) -> torch.Tensor:
        start = time.perf_counter()
        try:
            return self._members(inputs, **options)
        finally:
            self.seconds += time.perf_counter() - start


def beside_the_passes(model: Transformer, dataset: SequenceDataset) -> float:
    """What an evaluation takes beside its own forward passes, as a share of them."""
    watch = Stopwatch(model)
    model.members = watch  # type: ignore[method-assign, assignment]
    try:
        whole, _ = seconds(lambda: evaluated(model, dataset, costs=False))
    finally:
        del model.members
    return whole / watch.seconds - 1


@click.command()
@click.option("--images", "count", default=10_000, show_default=True, help="Number of images.")
@click.option("--repeats", default=5, show_default=True, help="Turns.")
@click.option("--threads", default=1, show_default=True, help="CPU threads of one operation.")
def main(count: int, repeats: int, threads: int) -> None:
    """Measure, and print a row for each way."""
    keep_memory()
    torch.set_num_threads(threads)
    model = open_model(SOURCE)
    prepared = [batch.inputs for batch in batches(images(count), preprocessor(model), batch_size=CPU.batch_size)]
    ways: dict[str, Callable[[], None]] = {
        "forward passes alone": lambda: forward_only(model, prepared),
        "reading and forward passes": lambda: loop(model, images(count)),
        "evaluate": lambda: evaluated(model, images(count), costs=False),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    beside = []
    evaluated(model, images(64), costs=True)  # imports and first allocations
    for _ in range(repeats):
        for name, work in ways.items():
            found[name].append(seconds(work))
        beside.append(beside_the_passes(model, images(count)))
    # The fastest turn: whatever else the machine does only adds.
    best = {name: tuple(map(min, zip(*times, strict=True))) for name, times in found.items()}
    alone = best["forward passes alone"]
    click.echo(f"{count:,} images, {threads} threads, {repeats} turns")
    for name, (wall, processor) in best.items():
        click.echo(
            f"{name:34} wall {wall:7.2f} s {wall / alone[0] - 1:+6.1%}   processor {processor:7.2f} s "
            f"{processor / alone[1] - 1:+6.1%}  (fastest turns)"
        )
    shares = ", ".join(f"{share:.1%}" for share in sorted(beside))
    click.echo(f"evaluate beside its own forward passes: {statistics.median(beside):.1%} of them ({shares})")


if __name__ == "__main__":
    main()
