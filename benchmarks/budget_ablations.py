"""What each part of the budgets is worth, small: ``python benchmarks/budget_ablations.py [--work WORK]``.

Trains the built-in digits model with budgets, then the same with one thing left out at a time: the same budget for
every input, random heads, no entropy term, no budget term. All are brought to the same share of the heads where they
have a predictor. One line per variant: accuracy and loss on the test set, share that ran, its deviation between
inputs. Finished variants in WORK are not trained again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import torch

from compress.artifact.store import load_model
from compress.budgeting.budget import budget
from compress.budgeting.options import Budget
from compress.data.base import open_dataset
from compress.evaluation.collect import collect
from compress.evaluation.subject import Subject
from compress.runtime import Runtime

MODEL = "builtin:digits-vit"
RUNTIME = Runtime(device="cpu", batch_size=100)


def variants(share: float) -> dict[str, dict[str, Any]]:
    """The differences of every variant from the whole method."""
    return {
        "budgets": {"calibrate_to": share},
        "fixed budget": {"fixed": share},
        "random heads": {"calibrate_to": share, "choice": "random"},
        "fixed, random": {"fixed": share, "choice": "random"},
        "no entropy term": {"calibrate_to": share, "entropy_weight": 0.0},
        "no budget term": {"calibrate_to": share, "budget_weight": 0.0},
    }


def trained(folder: Path, options: Budget) -> None:
    """Train a variant unless an earlier run did."""
    if not (folder / "MANIFEST.json").is_file():
        budget(
            MODEL,
            folder,
            data="builtin:digits#train",
            calibration="builtin:digits#calibration",
            options=options,
            runtime=RUNTIME,
        )


def figures(folder: Path) -> dict[str, float]:
    """Accuracy, loss, and the executed share with its deviation, on the test set."""
    found = collect(Subject(folder.name, load_model(folder)), open_dataset("builtin:digits#test"), RUNTIME, folder.name)
    columns, use = found.columns, found.use
    if columns.correct is None or columns.nll is None or use is None or use.budget is None:
        raise click.ClickException(f"{folder} has no budgets")
    return {
        "accuracy": float(columns.correct.double().mean()),
        "nll": float(columns.nll.mean()),
        "share": float(use.budget.mean()),
        "deviation": float(use.budget.std(correction=0)),
    }


@click.command(help=__doc__)
@click.option("--work", default="budget-ablations", show_default=True, type=click.Path(path_type=Path))
@click.option("--share", default=1 / 3, show_default="1/3", help="Share of the heads of every variant.")
@click.option("--epochs", default=6, show_default=True)
@click.option("--lr", default=3e-4, show_default=True)
@click.option("--seeds", default=1, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(work: Path, share: float, epochs: int, lr: float, seeds: int, threads: int) -> None:
    torch.set_num_threads(threads)
    print(f"{'variant':<17}{'seed':>5}{'accuracy':>10}{'NLL':>8}{'share':>8}{'deviation':>11}")
    for name, changes in variants(share).items():
        for seed in range(seeds):
            folder = work / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
            options = Budget.model_validate(
                {"min": 0.1, "max": 0.45, "epochs": epochs, "lr": lr, "batch_size": 32, "seed": seed, **changes}
            )
            trained(folder, options)
            found = figures(folder)
            (folder.parent / f"{folder.name}.json").write_text(json.dumps(found), encoding="utf-8")
            print(
                f"{name:<17}{seed:>5}{found['accuracy']:>10.4f}{found['nll']:>8.3f}{found['share']:>8.3f}"
                f"{found['deviation']:>11.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
