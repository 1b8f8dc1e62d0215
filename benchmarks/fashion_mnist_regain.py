"""How much of the accuracy that pruning costs one epoch of tuning regains, on Fashion-MNIST.

    python benchmarks/fashion_mnist_regain.py MODEL DATA --work FOLDER

MODEL is a vision transformer trained by ``recipes/fashion-mnist/reference.yaml``, DATA holds the folder
``fashion-mnist`` with its four idx files. The model is pruned to 4 of 12 heads in every layer by Taylor importance on
the 2,000 training images that it has not seen, and tuned for one epoch on the others. For a fair comparison the
unpruned model gets the same extra epoch. Target: at least half of the loss regained. Every step is resumable and kept
in FOLDER, so a second call only prints.
"""

from __future__ import annotations

from pathlib import Path

import click

import compress
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME

KEPT, SEEN = 4, 58_000


def done(folder: Path) -> bool:
    """Whether an earlier call has finished this artifact."""
    return (folder / MANIFEST_NAME).is_file() and bool(verify_folder(folder).digest)


@click.command(help=__doc__)
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for the models.")
@click.option("--lr", default=5e-4, show_default=True, help="Highest learning rate of the extra epoch.")
@click.option("--seed", default=0, show_default=True)
def main(model: Path, data: Path, work: Path, lr: float, seed: int) -> None:
    images = data / "fashion-mnist"
    train, calibration = f"{images}#train[:{SEEN}]", f"{images}#train[{SEEN}:]"
    pruned, tuned, longer = (work / name for name in ("pruned", "tuned", "single-longer"))
    extra = compress.Tune(epochs=1, batch_size=64, lr=lr, beta2=0.99, flip=True, shift=1, seed=seed)
    if not done(pruned):
        options = compress.Prune(members=1, keep=KEPT, seed=seed)
        compress.prune(model, pruned, data=calibration, options=options)
    for start, out in ((pruned / "member-0", tuned), (model, longer)):
        if not done(out):
            compress.tune(start, out, data=train, options=extra)
    models = {"single": model, "single, one more epoch": longer, "pruned": pruned / "member-0", "pruned, tuned": tuned}
    result = compress.evaluate(models, data=f"{images}#test", options=compress.Evaluate(latency=False, memory=False))
    click.echo(result.table())
    accuracy = {own.name: own.metrics["cls/accuracy"] or 0.0 for own in result.models}
    for reference in ("single", "single, one more epoch"):
        lost = accuracy[reference] - accuracy["pruned"]
        regained = accuracy["pruned, tuned"] - accuracy["pruned"]
        click.echo(
            f"{KEPT} heads a layer: {lost:.1%} accuracy lost against {reference}, {regained:.1%} regained by one "
            f"epoch = {regained / lost:.0%} of the loss"
        )


if __name__ == "__main__":
    main()
