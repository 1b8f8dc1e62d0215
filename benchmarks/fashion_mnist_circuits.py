"""Circuits against Taylor importance on Fashion-MNIST, with MNIST and two unseen sets as foreign data.

    python benchmarks/fashion_mnist_circuits.py MODEL DATA --work FOLDER

MODEL is an artifact trained by ``recipes/fashion-mnist/reference.yaml``, which left out the last ``--calibration``
images of the training set: on these heads are scored and circuits are searched. DATA holds the folders
``fashion-mnist`` and ``mnist`` with their idx files. MNIST's images are split by their position: even ones validate
(the circuits are searched with a part of them), odd ones test. The scanned digits and the photos that come with
scikit-learn are foreign sets that no search has seen. Both methods get the same members, heads, branch layer and bound
on the overlap; with ``--epochs`` the single model and both fused models are tuned alike on the images that are left.
Every step is kept in FOLDER and skipped by the next call. The tables show 95 % intervals; the last one is of paired
differences, with losses as well as wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

import compress
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.data.base import Dataset
from compress.data.subset import take
from compress.evaluation.result import EvaluationResult, ModelResult

OBJECTIVES = ("task", "ood", "avg")


def done(folder: Path) -> bool:
    """Whether an earlier call has finished this artifact."""
    return (folder / MANIFEST_NAME).is_file() and bool(verify_folder(folder).digest)


def spread(data: Dataset, count: int) -> Dataset:
    """``count`` samples at equal distances, or all of fewer."""
    step = max(1, len(data) // count)
    return take(data, range(0, len(data), step)[:count])


def models(model: str, work: Path, cut: compress.Prune, sets: Mapping[str, Dataset]) -> dict[str, Path | str]:
    """The single model, members and fused models of both methods; made where they are missing."""
    found: dict[str, Path | str] = {"single": model}
    fused: dict[str, Path | str] = {}
    for method in ("taylor", "circuit"):
        pruned, whole = work / method, work / f"{method}-fused"
        if not done(pruned):
            foreign = sets["foreign validation"] if method == "circuit" else None
            options = cut.model_copy(update={"method": method})
            print(compress.prune(model, pruned, data=sets["calibration"], ood=foreign, options=options).table())
        if not done(whole):
            compress.fuse(pruned, whole)
        members = {"taylor member": "member-0"} if method == "taylor" else {}
        if method == "circuit":
            members = {f"circuit by {objective}": f"member-{number}" for number, objective in enumerate(OBJECTIVES)}
        found |= {name: pruned / folder for name, folder in members.items()}
        fused[f"fused {method}"] = whole
    return found | fused


def tuned(found: Mapping[str, Path | str], work: Path, train: Dataset, options: compress.Tune) -> dict[str, Path | str]:
    """The single and the fused models after the same further epochs."""
    after: dict[str, Path | str] = {}
    for name in ("single", "fused taylor", "fused circuit"):
        folder = work / f"{name.replace(' ', '-')}-tuned"
        if not done(folder):
            compress.tune(str(found[name]), folder, data=train, options=options)
        after[f"{name}, tuned"] = folder
    return after


def with_intervals(result: EvaluationResult, metrics: Mapping[str, str]) -> str:
    """A Markdown table of percentages."""

    def cell(model: ModelResult, metric: str) -> str:
        value, bounds = model.metrics.get(metric), model.intervals.get(metric)
        if value is None:
            return "–"
        return f"{100 * value:.1f}" + ("" if bounds is None else f" [{100 * bounds.low:.1f}, {100 * bounds.high:.1f}]")

    lines = [f"| model | M FLOPs | {' | '.join(metrics)} |", f"|---|---{'|---' * len(metrics)}|"]
    for model in result.models:
        cells = [cell(model, metric) for metric in metrics.values()]
        lines.append(f"| {model.name} | {(model.cost.flops or 0) / 1e6:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(result: EvaluationResult, metrics: Mapping[str, str]) -> str:
    """How the second model differs from the first: won, lost, or within noise."""
    first, second = result.models
    lines = [f"| {second.name} − {first.name} | difference | |", "|---|---|---|"]
    for title, metric in metrics.items():
        bounds = second.differences[metric]
        change = 100 * ((second.metrics[metric] or 0.0) - (first.metrics[metric] or 0.0))
        better = change < 0 if metric == "cal/ece" else change > 0
        verdict = "within noise" if bounds.contains(0.0) else "better" if better else "worse"
        lines.append(f"| {title} | {change:+.1f} [{100 * bounds.low:+.1f}, {100 * bounds.high:+.1f}] | {verdict} |")
    return "\n".join(lines)


@click.command(help=__doc__)
@click.argument("model")
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path), envvar="COMPRESS_SHARED_DATA")
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for the models.")
@click.option("--calibration", default=2000, show_default=True, help="Images that score heads and search circuits.")
@click.option("--foreign", default=1000, show_default=True, help="Foreign images that circuits are searched with.")
@click.option("--limit", type=int, help="Test with this many images of each set only.")
@click.option("--keep", default=4, show_default=True, help="Heads kept per layer.")
@click.option("--branch-layer", default=0, show_default=True)
@click.option("--trunk-keep", type=int, help="Heads kept per layer of the trunk (default: as --keep).")
@click.option("--max-overlap", type=float, help="Bound on the members' overlap, for both methods.")
@click.option("--epochs", default=0, show_default=True, help="Further epochs for the single and the fused models.")
@click.option("--lr", default=3e-4, show_default=True, help="Of the further epochs.")
@click.option("--seed", default=0, show_default=True)
def main(
    model: str,
    data: Path,
    work: Path,
    calibration: int,
    foreign: int,
    limit: int | None,
    keep: int,
    branch_layer: int,
    trunk_keep: int | None,
    max_overlap: float | None,
    epochs: int,
    lr: float,
    seed: int,
) -> None:
    train, test = (compress.open_dataset(f"{data / 'fashion-mnist'}#{split}") for split in ("train", "test"))
    mnist = compress.open_dataset(f"{data / 'mnist'}#test")
    split = len(train) - calibration
    sets = {
        "train": take(train, range(split)),
        "calibration": take(train, range(split, len(train))),
        "foreign validation": spread(take(mnist, range(0, len(mnist), 2)), foreign),
    }
    tests = {
        "Fashion-MNIST": test,
        "mnist": take(mnist, range(1, len(mnist), 2)),
        "digits": compress.open_dataset("builtin:digits#train"),
        "photos": compress.open_dataset("builtin:photos"),
    }
    if limit is not None:
        tests = {name: spread(own, limit) for name, own in tests.items()}
    own_test = tests.pop("Fashion-MNIST")
    options = compress.Prune(
        keep=keep, branch_layer=branch_layer, trunk_keep=trunk_keep, max_overlap=max_overlap, members=3, seed=seed
    )
    found = models(model, work, options, sets)
    if epochs:
        found |= tuned(found, work, sets["train"], compress.Tune(epochs=epochs, lr=lr, seed=seed))
    measuring = compress.Evaluate(latency=False, memory=False, seed=seed)
    metrics = {"accuracy": "cls/accuracy", "ECE": "cal/ece"} | {f"AUROC {name}": f"ood/{name}/auroc" for name in tests}
    print(with_intervals(compress.evaluate(found, data=own_test, ood=tests, options=measuring), metrics))
    for suffix in ("", ", tuned") if epochs else ("",):
        pair = {name: found[name] for name in (f"fused taylor{suffix}", f"fused circuit{suffix}")}
        print()
        print(differences(compress.evaluate(pair, data=own_test, ood=tests, options=measuring), metrics))


if __name__ == "__main__":
    main()
