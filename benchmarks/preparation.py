"""What preparing a model costs: ``python benchmarks/preparation.py``.

Three targets, on a model of BERT-base's size with random weights and M = 3:

- Taylor scoring takes at most 1.15 times one forward and backward pass of the library's own model over the same data,
  read and preprocessed in the same way, with the gradients of all weights as in a step of training;
- ``compress prune --scores`` and ``compress fuse`` take at most 15 s together, and each stays below 1.5 times the size
  of one model and the output in resident memory (pages of mapped files included);
- ``compress --help`` takes at most 0.4 s.

The commands are run as processes of their own. A second figure per command is the processor time, which other processes
of the machine disturb less.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import torch
import torch.nn.functional as F

from compress.allocator import keep_memory
from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.registry import ADAPTERS, preprocessor
from compress.backbones.source import ModelSource
from compress.data.batches import batches
from compress.data.sequence import SequenceDataset
from compress.pruning.prune import SCORES
from compress.pruning.scores import HeadScores, save_scores
from compress.pruning.taylor import taylor_samples
from compress.runtime import Runtime
from compress.transformer.model import Transformer

VIT = {"img_size": 96, "num_classes": 10}
BERT = ModelSource(adapter="hf", name="BertForSequenceClassification")
MEMBERS, KEEP, BRANCH = 3, 4, 9


def photographs(count: int) -> SequenceDataset:
    """Images of noise; the classes go round."""
    import numpy as np
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (count, 96, 96, 3), dtype=np.uint8)
    names = tuple(str(number) for number in range(10))
    labels = [row % 10 for row in range(count)]
    return SequenceDataset([Image.fromarray(pixels) for pixels in noise], "image", class_names=names, labels=labels)


def scoring(images: int, repeats: int) -> None:
    """Taylor scores of a ViT-S/16 at 96 pixels against one pass of training without its step."""
    adapter = ADAPTERS["timm"]
    model = adapter.untrained(ModelSource(adapter="timm", name="vit_small_patch16_224", arguments=VIT))
    library = adapter.library_model(model.config.backbone, len(model.labels))
    dataset, runtime = photographs(images), Runtime(device="cpu", batch_size=32)

    def forward_and_backward() -> None:
        for batch in batches(dataset, preprocessor(model), batch_size=runtime.batch_size):
            library.zero_grad()
            F.cross_entropy(library(batch.inputs), batch.labels).backward()

    ways: dict[str, Callable[[], object]] = {
        "forward and backward": forward_and_backward,
        "taylor scores": lambda: taylor_samples(model, dataset, runtime),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(repeats + 1):
        for name, work in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            work()
            if turn:  # the first round warms up
                found[name].append((time.perf_counter() - wall, time.process_time() - processor))
    medians = {
        name: [statistics.median(column) for column in zip(*times, strict=True)] for name, times in found.items()
    }
    click.echo(f"scoring {images} images with ViT-S/16 at 96 pixels, medians of {repeats}")
    for name, (wall_, processor_) in medians.items():
        click.echo(f"  {name:24} {wall_:7.2f} s wall {processor_:7.2f} s processor")
    wall_ratio, processor_ratio = (
        scored / passed
        for scored, passed in zip(medians["taylor scores"], medians["forward and backward"], strict=True)
    )
    click.echo(f"  ratio {wall_ratio:.2f} wall, {processor_ratio:.2f} processor (target: 1.15)")


def preparing(folder: Path) -> None:
    """``prune --scores`` and ``fuse``, as commands."""
    model = ADAPTERS["hf"].untrained(BERT)
    save_model(model, folder / "model", Provenance(stage="benchmark"))
    save_scores(_random_scores(model), folder / SCORES)
    size = _bytes(folder / "model")
    del model
    click.echo(f"preparing a model of {size / 1e6:,.0f} MB, {MEMBERS} members of {KEEP} heads, branch layer {BRANCH}")
    prune = ("prune", "model", "-o", "pruned", "--scores", SCORES, "--keep", str(KEEP), "--members", str(MEMBERS))
    seconds = 0.0
    for name, line, output in (
        ("prune --scores", (*prune, "--branch-layer", str(BRANCH)), "pruned"),
        ("fuse", ("fuse", "pruned", "-o", "fused"), "fused"),
    ):
        wall, processor, peak = command(line, folder)
        bound = 1.5 * (size + _bytes(folder / output))
        seconds += wall
        click.echo(
            f"  {name:24} {wall:7.2f} s wall {processor:7.2f} s processor {peak / 1e6:8,.0f} MB resident "
            f"(target: {bound / 1e6:,.0f})"
        )
    click.echo(f"  together {seconds:.2f} s (target: 15)")


def helping(repeats: int) -> None:
    """``compress --help``."""
    times = [command(("--help",), Path.cwd())[:2] for _ in range(repeats)]
    wall, processor = (statistics.median(column) for column in zip(*times, strict=True))
    click.echo(f"compress --help {wall:.2f} s wall {processor:.2f} s processor (target: 0.4)")


LAUNCHER = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
seconds, used = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stderr, seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024]))
"""


def command(arguments: tuple[str, ...], folder: Path) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak resident bytes of ``compress`` with these arguments.

    A small process starts it: Linux counts the peak of the process that starts a program as the program's own.
    """
    program = [sys.executable, "-m", "compress", *arguments]
    launched = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *program], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    code, message, seconds, processor, peak = json.loads(launched.stdout)
    if code:
        raise click.ClickException(f"compress {' '.join(arguments)} failed: {message}")
    return seconds, processor, peak


def _random_scores(model: Transformer) -> HeadScores:
    generator = torch.Generator().manual_seed(0)
    samples = tuple(torch.rand(64, layer.attention.slots, generator=generator) for layer in model.layers)
    return HeadScores(samples, "taylor", model_fingerprint(model))


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@click.command()
@click.option("--images", default=128, show_default=True, help="Images that are scored.")
@click.option("--repeats", default=3, show_default=True, help="Turns; the median counts.")
@click.option("--threads", default=2, show_default=True, help="CPU threads of one operation.")
def main(images: int, repeats: int, threads: int) -> None:
    """Measure, and print every figure beside its target."""
    keep_memory()
    torch.set_num_threads(threads)
    click.echo(f"load {os.getloadavg()[0]:.1f}")
    scoring(images, repeats)
    with tempfile.TemporaryDirectory() as folder:
        preparing(Path(folder))
    helping(repeats)


if __name__ == "__main__":
    main()
