"""How much faster the circuit search is than masking one head at a time, in equal precision, and whether both agree.

    python benchmarks/circuit_speed.py

The loop that is compared with runs the whole model once per head and batch, on inputs that are in memory already, with
the same gates, batch size and number format. Target: 1.6 times for a model of 12 layers; the bound is 144 / 78 = 1.85
for the layers below a head, and a little more because a layer's attention runs once for all its heads. A few minutes on
two cores; the load average is printed, because a busy machine measures itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import click
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from compress.backbones.registry import preprocessor
from compress.backbones.source import ModelSource
from compress.data.sequence import SequenceDataset
from compress.opening import open_model
from compress.pruning.circuit import CircuitSearcher
from compress.pruning.circuit_scores import Search, SearchScores
from compress.pruning.masking import without
from compress.pruning.reading import computing
from compress.pruning.selection import strongest
from compress.runtime import Runtime
from compress.transformer.model import Transformer

T = TypeVar("T")
CLASSES = 10


def random_model(depth: int, width: int, heads: int, pixels: int, patch: int) -> Transformer:
    """A vision transformer with random weights, large enough to make losses differ."""
    source = ModelSource(
        adapter="timm",
        name="vit_tiny_patch16_224",
        weights="random",
        labels=tuple(str(number) for number in range(CLASSES)),
        arguments={
            "img_size": pixels,
            "patch_size": patch,
            "in_chans": 1,
            "embed_dim": width,
            "depth": depth,
            "num_heads": heads,
        },
        preprocessing={"mean": [0.5], "std": [0.5], "resize": "squash", "interpolation": "bilinear"},
    )
    model = open_model(source)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn(parameter.shape, generator=generator) * parameter.shape[-1] ** -0.5
    return model.eval()


def random_images(count: int, pixels: int) -> SequenceDataset:
    """Noise with labels."""
    values = torch.randint(256, (count, pixels, pixels), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    names = tuple(str(number) for number in range(CLASSES))
    images = [Image.fromarray(own) for own in values.numpy()]
    labels = [index % CLASSES for index in range(count)]
    return SequenceDataset(images, "image", class_names=names, labels=labels)


def one_head_at_a_time(
    model: Transformer, batches: Sequence[tuple[Tensor, Tensor]], keep: int, runtime: Runtime
) -> tuple[list[Tensor], list[list[int]]]:
    """HeadMap's Algorithm 1 as it is written: losses ``(n_l,)`` and circuit per layer."""
    losses: list[Tensor] = []
    circuit: list[list[int]] = []
    for layer in model.layers:
        own = []
        for head in range(layer.attention.slots):
            gates = without(model, [*circuit, [head]])
            total, count = 0.0, 0
            for inputs, labels in batches:
                with computing(runtime):
                    logits = model.members(inputs, gates=gates)[0]
                total += float(F.cross_entropy(logits.double(), labels, reduction="sum"))
                count += len(labels)
            own.append(total / count)
        losses.append(torch.tensor(own, dtype=torch.float64))
        circuit.append(strongest(losses[-1], keep))
    return losses, circuit


def timed(work: Callable[[], T]) -> tuple[float, float, T]:
    """Seconds on the clock, seconds of the processor (which suffer less from other programs), and the result."""
    start, computed = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - computed, result


@click.command(help=__doc__)
@click.option("--depth", default=12, show_default=True)
@click.option("--width", default=192, show_default=True)
@click.option("--heads", default=12, show_default=True)
@click.option("--pixels", default=64, show_default=True)
@click.option("--patch", default=8, show_default=True)
@click.option("--samples", default=16, show_default=True)
@click.option("--keep", default=4, show_default=True)
@click.option("--repeats", default=2, show_default=True, help="The fastest of each counts.")
@click.option("--batch-size", default=16, show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(
    depth: int,
    width: int,
    heads: int,
    pixels: int,
    patch: int,
    samples: int,
    keep: int,
    repeats: int,
    batch_size: int,
    dtype: str,
    device: str,
) -> None:
    runtime = Runtime.model_validate({"device": device, "dtype": dtype, "batch_size": batch_size})
    model = random_model(depth, width, heads, pixels, patch).to(runtime.torch_device())
    data = random_images(samples, pixels)
    inputs = preprocessor(model)([data[index].value for index in range(samples)]).to(runtime.torch_device())
    labels = torch.tensor(data.labels, device=inputs.device)
    batches = list(zip(inputs.split(batch_size), labels.split(batch_size), strict=True))
    search = SearchScores(Search(objective="task", start=0, keep=(keep,) * depth, masked=()))
    searcher = CircuitSearcher(model, data, None, runtime)

    runs = []
    for _ in range(repeats):
        *fast, found = timed(lambda: searcher.run(search))
        *naive, (naive_losses, naive_circuit) = timed(lambda: one_head_at_a_time(model, batches, keep, runtime))
        runs.append((*fast, *naive))
    fast_clock, fast_processor, naive_clock, naive_processor = map(min, zip(*runs, strict=True))
    same = [list(own) for own in found.circuit] == naive_circuit
    pairs = [(own.task, other) for own, other in zip(found.losses, naive_losses, strict=True)]
    difference = max(float((own - other).abs().max()) for own, other in pairs if own is not None)
    print(f"{depth} layers of {heads} heads, width {width}; {samples} samples, {batch_size} a batch; {dtype}, {device}")
    for name, fastest, slowest in (
        ("clock", fast_clock, naive_clock),
        ("processor", fast_processor, naive_processor),
    ):
        ratio = f"{slowest / fastest:.2f} times as fast"
        print(f"{name:<9}  one head at a time {slowest:.2f} s, search {fastest:.2f} s: {ratio}")
    print(f"same heads: {'yes' if same else 'no'}; largest difference of a loss {difference:.1e} nats")
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{torch.get_num_threads()} threads, {os.cpu_count()} cores{load}")


if __name__ == "__main__":
    main()
