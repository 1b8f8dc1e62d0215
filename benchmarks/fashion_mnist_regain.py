"""How much of the accuracy that pruning costs one epoch of tuning regains, on Fashion-MNIST.

    python benchmarks/fashion_mnist_regain.py DATA --work FOLDER

DATA holds the four idx files of Fashion-MNIST. A vision transformer of 8 layers of 12 heads is trained from random
weights, pruned to 4 heads in every layer by Taylor importance, and tuned for one epoch. For a fair comparison the
unpruned model gets the same extra epoch. Target: at least half of the loss regained. Every step is resumable and kept
in FOLDER, so a second call only prints; it takes about a quarter of an hour on two cores.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

import compress
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.backbones.source import ModelSource

LABELS = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
HEADS, KEPT = 12, 4


def source(width: int, depth: int) -> ModelSource:
    """The architecture: 28 x 28 grey pixels in 16 patches of 7 x 7."""
    return ModelSource(
        adapter="timm",
        name="vit_tiny_patch16_224",
        weights="random",
        labels=LABELS,
        arguments={
            "img_size": 28,
            "patch_size": 7,
            "in_chans": 1,
            "embed_dim": width,
            "depth": depth,
            "num_heads": HEADS,
            "mlp_ratio": 2.0,
            "weight_init": "jax",
        },
        preprocessing={"mean": [0.286], "std": [0.353], "resize": "squash", "interpolation": "bilinear"},
    )


def done(folder: Path) -> bool:
    """Whether an earlier call has finished this artifact."""
    return (folder / MANIFEST_NAME).is_file() and bool(verify_folder(folder).digest)


@click.command(help=__doc__)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--work", required=True, type=click.Path(path_type=Path), help="Folder for the models.")
@click.option("--epochs", default=4, show_default=True, help="Epochs of the first training.")
@click.option("--width", default=96, show_default=True)
@click.option("--depth", default=8, show_default=True)
@click.option("--lr", default=1e-3, show_default=True, help="Of the first training.")
@click.option("--tune-lr", default=5e-4, show_default=True, help="Of the extra epoch.")
@click.option("--seed", default=0, show_default=True)
def main(data: Path, work: Path, epochs: int, width: int, depth: int, lr: float, tune_lr: float, seed: int) -> None:
    train, test = f"{data}#train", f"{data}#test"
    single, pruned, tuned, longer = (work / name for name in ("single", "pruned", "tuned", "single-longer"))
    extra = compress.Tune(epochs=1, batch_size=64, lr=tune_lr, beta2=0.99, seed=seed)
    if not done(single):
        first = compress.Tune(epochs=epochs, batch_size=64, lr=lr, beta2=0.99, from_scratch=True, seed=seed)
        compress.tune(source(width, depth), single, data=train, options=first)
    if not done(pruned):
        compress.prune(single, pruned, data=train, options=compress.Prune(members=1, keep=KEPT, seed=seed))
    for start, out in ((pruned / "member-0", tuned), (single, longer)):
        if not done(out):
            compress.tune(start, out, data=train, options=extra)
    models = {"single": single, "single, one more epoch": longer, "pruned": pruned / "member-0", "pruned, tuned": tuned}
    result = compress.evaluate(models, data=test, options=compress.Evaluate(latency=False))
    click.echo(result.table())
    plain = json.loads(result.to_json())
    accuracy = {model["name"]: model["metrics"]["cls/accuracy"] for model in plain["models"]}
    for reference in ("single", "single, one more epoch"):
        lost = accuracy[reference] - accuracy["pruned"]
        regained = accuracy["pruned, tuned"] - accuracy["pruned"]
        click.echo(
            f"{KEPT} of {HEADS} heads: {lost:.1%} accuracy lost against {reference}, {regained:.1%} regained by one "
            f"epoch = {regained / lost:.0%} of the loss"
        )


if __name__ == "__main__":
    main()
