"""Where the time of one forward pass goes: ``python benchmarks/forward_profile.py``.

ViT-B/16 on random weights: the library's model, this project's single one, and three members of 4 of 12 heads fused at
a branch layer. One line each, shares by torch's profiler.
"""

from __future__ import annotations

import os

import click
import torch
from profiling import profiled
from taking_turns import dense_model, random_images

from compress.allocator import keep_memory
from compress.backbones.registry import ADAPTERS
from compress.fusion.in_memory import fuse_models
from compress.transformer.surgery import prune_heads

MEMBERS, KEEP, HEADS, LAYERS = 3, 4, 12, 12


@click.command(help=__doc__)
@click.option("--batch", "batches", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--branch-layer", default=9, show_default=True)
@click.option("--repeats", default=10, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(batches: tuple[int, ...], branch_layer: int, repeats: int, threads: int) -> None:
    keep_memory()
    torch.set_num_threads(threads)
    single = dense_model()
    trunk = [tuple(range(HEADS))] * branch_layer
    own = [tuple(range(member * KEEP, (member + 1) * KEEP)) for member in range(MEMBERS)]
    members = [prune_heads(single, [*trunk, *[heads] * (LAYERS - branch_layer)]) for heads in own]
    models = {
        "library": ADAPTERS["timm"].library_model(single.config.backbone, len(single.labels)).eval(),
        "single": single,
        f"{MEMBERS} fused at {branch_layer}": fuse_models(members),
    }
    with torch.inference_mode():
        for batch in batches:
            images = random_images(batch)
            for name, model in models.items():
                click.echo(
                    f"batch {batch}, {name}: {profiled(lambda model=model, images=images: model(images), repeats)}"
                )
    click.echo(f"float32, {threads} threads, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
