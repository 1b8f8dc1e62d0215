"""Accuracy of a routed MiniLM on movie sentences against the dense model tuned alike, over seeds.

    python benchmarks/minilm_route.py DATA --work FOLDER

DATA holds the CSV files of movie sentences (see ``minilm.py``). Capacity 0.5 on every second block; target: a mean
paired difference to the dense model of at least -0.5 point. MiniLM is fine-tuned once; then every model trains alike
from there, with the fine-tuned one as teacher. Every step is resumable and kept in FOLDER, so a second call only
prints.
"""

from __future__ import annotations

from pathlib import Path

import click
from minilm import BATCH, fine_tuned_minilm, movie_sentences
from routing_quality import Comparison, quiet_threads, routing_of, show

import compress
from compress.allocator import keep_memory


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for the models.")
@click.option("--seeds", default=3, show_default=True)
@click.option("--baseline-seeds", default=1, show_default=True, help="Seeds of the random and depth-pruned baselines.")
@click.option(
    "--steps", default=110, show_default=True, help=f"Steps of {BATCH} sentences from the fine-tuned model on."
)
@click.option("--first-epochs", default=2, show_default=True, help="Epochs of the fine-tuning.")
@click.option("--lr", default=1e-4, show_default=True)
@click.option("--distill", default=0.5, show_default=True, help="Share of the teacher's targets, for every model.")
@click.option("--anneal", default=0.4, show_default=True)
@click.option("--capacity", default=0.5, show_default=True)
@click.option("--block", "blocks", multiple=True, type=int, help="Route these instead of every second block.")
@click.option("--part", default="block", show_default=True)
@click.option("--choice", default="expert", show_default=True)
@click.option("--limit", type=int, help="Use so many sentences only.")
@click.option("--threads", default=1, show_default=True)
def main(
    data: Path,
    work: Path,
    seeds: int,
    baseline_seeds: int,
    steps: int,
    first_epochs: int,
    lr: float,
    distill: float,
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
    start = fine_tuned_minilm(data, work / "minilm", epochs=first_epochs, limit=limit)
    routing = {**routing_of(compress.load(start), capacity, part, choice, blocks), "anneal": anneal}
    training = {"steps": steps, "batch_size": BATCH, "lr": lr, "distill": distill}
    train, test = (movie_sentences(data, part_, limit) for part_ in ("train", "test"))
    show(Comparison(start, work, train, test, routing, training).run(range(seeds), baseline_seeds))


if __name__ == "__main__":
    main()
