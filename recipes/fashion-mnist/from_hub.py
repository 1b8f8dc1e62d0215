"""Write images of the Hugging Face hub as idx files, which the recipes read.

    python recipes/fashion-mnist/from_hub.py zalando-datasets/fashion_mnist DATA/fashion-mnist

It needs a network. The set must have the splits train and test, and the columns image (grey) and label (integers).
"""

from __future__ import annotations

import struct
from pathlib import Path

import click
import numpy as np
from datasets import Dataset, load_dataset

FILES = {"train": "train", "test": "t10k"}
IMAGES, LABELS = 2051, 2049


def write_idx(rows: Dataset, folder: Path, name: str) -> None:
    """``NAME-images-idx3-ubyte`` and ``NAME-labels-idx1-ubyte`` in ``folder``."""
    pixels = np.stack([np.asarray(image, dtype=np.uint8) for image in rows["image"]])
    labels = np.asarray(rows["label"], dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", IMAGES, *pixels.shape) + pixels.tobytes())
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", LABELS, len(labels)) + labels.tobytes())


@click.command(help=__doc__)
@click.argument("dataset")
@click.argument("out", type=click.Path(path_type=Path))
def main(dataset: str, out: Path) -> None:
    for split, name in FILES.items():
        rows = load_dataset(dataset, split=split)
        write_idx(rows, out, name)
        click.echo(f"{split}: {len(rows)} images")


if __name__ == "__main__":
    main()
