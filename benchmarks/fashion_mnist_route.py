"""Accuracy of a routed vision transformer on Fashion-MNIST against the dense model tuned alike, over seeds.

    python benchmarks/fashion_mnist_route.py MODEL DATA --work FOLDER

MODEL is an artifact trained on Fashion-MNIST (``fashion_mnist_regain.py`` makes one, in ``FOLDER/single``); DATA holds
the four idx files. Capacity 0.5 on every second block; target: a mean paired difference to the dense model of at least
-0.5 point. Every model trains alike from MODEL, with MODEL as teacher. Every step is resumable and kept in FOLDER.
"""

from __future__ import annotations

from pathlib import Path

import click
from routing_quality import Comparison, quiet_threads, routing_of, show

import compress
from compress.allocator import keep_memory
from compress.data.subset import take

BATCH = 64


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for the models.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--baseline-seeds", default=1, show_default=True, help="Seeds of the random and depth-pruned baselines.")
@click.option("--steps", default=450, show_default=True, help=f"Steps of {BATCH} images.")
@click.option("--lr", default=3e-4, show_default=True)
@click.option("--anneal", default=0.4, show_default=True)
@click.option("--capacity", default=0.5, show_default=True)
@click.option("--block", "blocks", multiple=True, type=int, help="Route these instead of every second block.")
@click.option("--part", default="block", show_default=True)
@click.option("--choice", default="expert", show_default=True)
@click.option("--limit", type=int, help="Use so many images only.")
@click.option("--threads", default=1, show_default=True)
def main(
    model: Path,
    data: Path,
    work: Path,
    seeds: int,
    baseline_seeds: int,
    steps: int,
    lr: float,
    anneal: float,
    capacity: float,
    blocks: tuple[int, ...],
    part: str,
    choice: str,
    limit: int | None,
    threads: int,
) -> None:
    keep_memory()
    quiet_threads(threads)
    routing = {**routing_of(compress.load(model), capacity, part, choice, blocks), "anneal": anneal}
    training = {"steps": steps, "batch_size": BATCH, "lr": lr, "beta2": 0.99, "distill": 0.5}
    train, test = (compress.open_dataset(f"{data}#{split}") for split in ("train", "test"))
    if limit is not None:
        train, test = (take(part_, range(min(limit, len(part_)))) for part_ in (train, test))
    show(Comparison(model, work, train, test, routing, training).run(range(seeds), baseline_seeds))


if __name__ == "__main__":
    main()
