"""What skipping tokens saves: a routed vision transformer against the dense one, in the same run, taking turns.

    python benchmarks/route_speed.py

ViT-B/16 shape with random weights, routers on every second block. Targets on two cores: capacity 0.25 takes at most
0.69 of the dense wall time, capacity 1.0 at most 1.02. Each round times every model once; the figures are medians of
the rounds' ratios with quartiles, on the clock and in processor time, which other programs disturb less. Some three
minutes on a quiet machine; the load average is printed, because a busy one measures itself.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence

import click
import torch

from compress.allocator import allocator, keep_memory
from compress.backbones.source import ModelSource
from compress.opening import open_model
from compress.routing.blocks import every_block
from compress.runtime import Runtime
from compress.transformer.executed_flops import executed_flops
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig

CLASSES = 1000
SHAPE = {"img_size": 224, "patch_size": 16, "embed_dim": 768, "depth": 12, "num_heads": 12}
TARGETS = {0.25: 0.69, 1.0: 1.02}


def dense_model() -> Transformer:
    """ViT-B/16 with timm's random weights."""
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize": "squash", "interpolation": "bilinear"}
    source = ModelSource(
        adapter="timm",
        name="vit_base_patch16_224",
        weights="random",
        labels=tuple(str(number) for number in range(CLASSES)),
        arguments=SHAPE,
        preprocessing=preprocessing,
    )
    return open_model(source)


def routed_model(dense: Transformer, capacity: float, choice: str, part: str) -> Transformer:
    """The same weights behind routers that rank the tokens at random."""
    blocks = every_block(2, len(dense.layers))
    config = RoutingConfig.model_validate({"blocks": blocks, "capacity": (capacity,), "choice": choice, "part": part})
    model = with_routers(dense, config).eval()
    generator = torch.Generator().manual_seed(0)
    for _, layer in routed_layers(model):
        weight = layer.router.weight.data
        weight.copy_(0.02 * torch.randn(weight.shape, generator=generator))
    return model


def seconds(
    models: Mapping[str, Transformer], images: torch.Tensor, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Per model and round the time on the clock and that of the processor, s; the order turns from round to round."""
    names, found = list(models), {name: list[tuple[float, float]]() for name in models}
    with torch.inference_mode():
        for model in models.values():
            model(images)
        for number in range(rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                _wait(images)
                clock, processor = time.perf_counter(), time.process_time()
                models[name](images)
                _wait(images)
                found[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return found


def _wait(images: torch.Tensor) -> None:
    if images.device.type == "cuda":
        torch.cuda.synchronize()


def ratios(own: Sequence[tuple[float, float]], dense: Sequence[tuple[float, float]]) -> str:
    """Medians of the rounds' ratios, and their quartiles."""
    words = []
    for kind, name in enumerate(("clock", "processor")):
        low, middle, high = statistics.quantiles([a[kind] / b[kind] for a, b in zip(own, dense, strict=True)], n=4)
        words.append(f"{name} {middle:.3f} ({low:.3f} – {high:.3f})")
    return ", ".join(words)


@click.command(help=__doc__)
@click.option("--capacity", "capacities", multiple=True, type=float, default=(0.25, 1.0), show_default=True)
@click.option("--batch", "batches", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--choice", default="expert", show_default=True)
@click.option("--part", default="block", show_default=True)
@click.option("--rounds", default=15, show_default=True)
@click.option("--threads", type=int, help="Threads of one operation (default: torch's own).")
@click.option("--dtype", default="float32", show_default=True)
@click.option("--device", default="cpu", show_default=True)
def main(
    capacities: Sequence[float],
    batches: Sequence[int],
    choice: str,
    part: str,
    rounds: int,
    threads: int | None,
    dtype: str,
    device: str,
) -> None:
    keep_memory()
    torch.set_num_threads(threads or torch.get_num_threads())
    runtime = Runtime.model_validate({"device": device, "dtype": dtype})
    place, form = runtime.torch_device(), runtime.torch_dtype()
    dense = dense_model().to(place, form)
    models = {"dense": dense, **{f"{share:g}": routed_model(dense, share, choice, part) for share in capacities}}
    print(f"ViT-B/16, blocks {', '.join(map(str, every_block(2, len(dense.layers))))}, {choice} choice, {part}")
    for batch in batches:
        images = torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(place, form)
        times = seconds(models, images, rounds)
        clock, processor = (1000 * statistics.median(column) for column in zip(*times["dense"], strict=True))
        print(f"batch {batch}: dense {clock:.1f} ms, {processor:.1f} ms of the processor")
        full = float(executed_flops(dense, None, [None]).total[0])
        for share in capacities:
            model = models[f"{share:g}"]
            counted = float(executed_flops(model, model.usage, [None] * batch).total.mean())
            target = f", target {TARGETS[share]}" if share in TARGETS else ""
            found = ratios(times[f"{share:g}"], times["dense"])
            print(f"  capacity {share:g}: of dense: {found}; FLOPs {counted / full:.3f}{target}")
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{dtype}, {place}, {torch.get_num_threads()} threads, {os.cpu_count()} cores, {allocator()}{load}")


if __name__ == "__main__":
    main()
