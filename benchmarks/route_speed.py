"""What skipping tokens saves: a routed vision transformer against the dense one, in the same run, taking turns.

    python benchmarks/route_speed.py

ViT-B/16 shape with random weights, routers on every second block. Targets on two cores: capacity 0.25 takes at most
0.69 of the dense wall time, capacity 1.0 at most 1.02. Each round times every model once; the figures are medians of
the rounds' ratios with quartiles, on the clock and in processor time, which other programs disturb less. Some three
minutes on a quiet machine; the load average is printed, because a busy one measures itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import torch
from taking_turns import Call, circumstances, dense_model, milliseconds, random_images, ratios, seconds
from torch import Tensor

from compress.allocator import keep_memory
from compress.routing.blocks import every_block
from compress.runtime import Runtime
from compress.transformer.executed_flops import executed_flops
from compress.transformer.model import Transformer
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig

TARGETS = {0.25: 0.69, 1.0: 1.02}


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


def _forward(model: Transformer, images: Tensor) -> Call:
    return lambda: model(images)


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
        images = random_images(batch).to(place, form)
        with torch.inference_mode():
            times = seconds({name: _forward(model, images) for name, model in models.items()}, rounds)
        print(f"batch {batch}: dense {milliseconds(times['dense'])}")
        full = float(executed_flops(dense, None, [None]).total[0])
        for share in capacities:
            model = models[f"{share:g}"]
            counted = float(executed_flops(model, model.usage, [None] * batch).total.mean())
            target = f", target {TARGETS[share]}" if share in TARGETS else ""
            found = ratios(times[f"{share:g}"], times["dense"])
            print(f"  capacity {share:g}: of dense: {found}; FLOPs {counted / full:.3f}{target}")
    print(circumstances(dtype, place))


if __name__ == "__main__":
    main()
