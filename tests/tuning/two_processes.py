"""What one process or several do in ``test_distributed.py``; each writes what it saw to FOLDER/INDEX-of-COUNT."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tiny.scratch_vit import tiny_source
from torch import Tensor

from compress.data.base import Dataset
from compress.data.builtin import digits, photos
from compress.data.subset import take
from compress.errors import ModelError
from compress.evaluation.evaluate import evaluate
from compress.evaluation.options import Evaluate
from compress.opening import open_model
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.runtime import Runtime
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.tuning.losses import ExtraLoss, StepOutputs
from compress.tuning.options import Tune
from compress.tuning.training import Task, train
from compress.tuning.tune import tune

CPU = Runtime(device="cpu", batch_size=5)
NINE = range(9)


class SkippedAtTimes(Layer):
    """A layer that the rows of one process enter and those of the other do not."""

    def forward(self, hidden: Hidden, *, gate: torch.Tensor | None = None, last: bool = False) -> Hidden:
        return hidden if os.environ.get("RANK", "0") == "1" else super().forward(hidden, gate=gate, last=last)


def skipping(model: Transformer) -> Transformer:
    layer: Any = model.layers[1]
    model.layers[1] = SkippedAtTimes(layer.attention, layer.mlp, layer.norm1, layer.norm2)
    return model


def metrics(model: Transformer, data: Dataset) -> dict[str, float | None]:
    """Nine labelled inputs in batches of five, and three foreign ones, which leave the second process without any."""
    options = Evaluate(latency=False, intervals=False)
    found = evaluate(
        {"model": model}, data=data, ood={"photos": take(photos(), range(3))}, options=options, runtime=CPU
    )
    return dict(getattr(found, "result", found).models[0].metrics)


class Infinite(ExtraLoss):
    """A loss that is infinite in the last process."""

    def prepare(self, model: Transformer, step: int, steps: int) -> None: ...

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        last = os.environ.get("RANK", "1") == "1"
        return {"infinite": outputs.member_logits.sum() * (torch.inf if last else 0.0)}


def non_finite(model: Transformer, data: Dataset, folder: Path) -> str:
    """The error of a training in which one process meets an infinity."""
    try:
        train(model, Task(data, extra_losses=(Infinite(),)), Tune(batch_size=5), CPU, folder=folder)
    except ModelError as error:
        return str(error)
    return ""


def main(folder: Path) -> None:
    index, count = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    torch.set_num_threads(1)
    data = take(digits("train"), NINE)
    pruned = prune(
        open_model(tiny_source()), folder / f"pruned-{count}", data=data, options=Prune(members=2, keep=2), runtime=CPU
    )
    prune(
        open_model(tiny_source()),
        folder / f"circuits-{count}",
        data=data,
        ood=take(photos(), NINE),
        options=Prune(method="circuit", members=3, keep=2),
        runtime=CPU,
    )
    options = Tune(epochs=2, batch_size=5, lr=1e-2, head_dropout=0.5, shift=1, log_steps=1)
    tuned = tune(
        open_model(tiny_source()),
        folder / f"tuned-{count}",
        data=data,
        validation=take(digits("calibration"), NINE),
        options=options,
        runtime=CPU,
    )
    seen = {
        "kept": pruned.kept_heads,
        "metrics": metrics(open_model(tiny_source()), data),
        "tuned": tuned.to_plain(),
        "error": non_finite(open_model(tiny_source()), data, folder / f"broken-{count}"),
    }
    (folder / f"{index}-of-{count}.json").write_text(json.dumps(seen))
    odd = skipping(open_model(tiny_source()))
    train(odd, Task(take(digits("train"), range(11))), options, CPU, folder=folder / f"odd-{count}")
    save_file(
        {name: value.clone() for name, value in odd.state_dict().items()}, folder / f"{index}-of-{count}.safetensors"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
