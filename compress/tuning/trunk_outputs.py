"""What a frozen trunk gives for every sample, computed once and read by all members in all epochs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from compress.artifact.durable import write_bytes, write_failure
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, Kind, Sample
from compress.data.batches import batches
from compress.data.reading import read_ahead
from compress.errors import DataError, UsageError
from compress.placing import evaluating, to_device
from compress.progress import progress
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.tuning.batches import Share

INDEX_NAME = "index.json"
STATES_NAME = "states.f32"


@dataclass(frozen=True)
class TrunkOutput:
    """One sample where the trunk ends.

    Attributes:
        states: ``(n, C)`` float32, its real tokens.
        pooled: which of them the pooling reads; None where that is the same for all samples.
    """

    states: np.ndarray
    pooled: int | None


class TrunkOutputs:
    """A data set whose values are ``TrunkOutput``, in files; see ``Dataset``.

    Attributes:
        steps: how many of the model's steps the trunk has.
        masked: whether tokens can be padding.
        first_pooled: how many first tokens the pooling reads; None where it reads others.

    Args:
        folder: what ``store_trunk_outputs`` wrote.
        dataset: the samples that they were computed of.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        index = json.loads((folder / INDEX_NAME).read_bytes())
        self.reference: str = dataset.reference
        self.kind: Kind = dataset.kind
        self.class_names, self.labels = dataset.class_names, dataset.labels
        self.masked: bool = index["masked"]
        self.steps: int = index["steps"]
        self.first_pooled: int | None = index["first_pooled"]
        self._dataset = dataset
        self._ends = np.cumsum(index["lengths"], dtype=np.int64)
        self._pooled: list[int] | None = index["pooled"]
        self._ids: list[str] = index["ids"]
        self._path, self._width = folder / STATES_NAME, index["width"]

    @cached_property
    def _states(self) -> np.ndarray:
        """``(tokens of all samples, C)``; every process and worker maps the file for itself."""
        return np.memmap(self._path, np.float32, "r", shape=(int(self._ends[-1]), self._width))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_states"}

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Sample:
        start = self._ends[index - 1] if index else 0
        pooled = None if self._pooled is None else self._pooled[index]
        output = TrunkOutput(self._states[start : self._ends[index]], pooled)
        label = None if self.labels is None else self.labels[index]
        return Sample(output, label, self._ids[index])  # type: ignore[arg-type]  # it stands for the value

    @property
    def fingerprint(self) -> str:
        """That of the samples."""
        return self._dataset.fingerprint

    def inputs(self, samples: list[Sample], share: Share) -> dict[str, Tensor]:
        """What ``entering`` reads: ``states (b, N, C)``, and ``mask`` and ``pooled`` where there are any."""
        outputs = [cast(TrunkOutput, sample.value) for sample in samples]
        states = [torch.from_numpy(np.array(output.states)) for output in outputs]
        found = {"states": pad_sequence(states, batch_first=True)}
        if self.masked:
            lengths = torch.tensor([len(own) for own in states])
            found["mask"] = torch.arange(found["states"].shape[1]) < lengths[:, None]
        if self._pooled is not None:
            found["pooled"] = torch.tensor([output.pooled for output in outputs])
        return found

    def entering(self, inputs: Mapping[str, Tensor]) -> Hidden:
        """The hidden states that the trunk gave for a batch."""
        return Hidden(inputs["states"], inputs.get("mask"), inputs.get("pooled", self.first_pooled))


def stored_trunk_outputs(
    folder: Path, model: Transformer, branch_layer: int, dataset: Dataset, runtime: Runtime
) -> TrunkOutputs:
    """The outputs of the layers below ``branch_layer``, in float32, computed unless an earlier call did.

    Memory on disk: 4 bytes per sample, real token and unit of the width.

    Args:
        folder: where they are kept; each trunk has its own folder within.
        model: one of the members; on the device of ``runtime``.
        branch_layer: the first layer that is not of the trunk.
        dataset: labelled, classes numbered as the model's.
        runtime: device and batch size.

    Raises:
        UsageError: the family hides tokens in another way than one by one.
        DataError: there are no samples.
        CompressError: a sample cannot be read, or the disk is full.
    """
    if len(dataset) == 0:
        raise DataError("there are no samples", where=dataset.reference, fix="choose data with at least one sample")
    own = folder / f"trunk-{_identity(model, branch_layer, dataset)[:16]}"
    if not (own / INDEX_NAME).is_file():
        try:
            own.mkdir(parents=True, exist_ok=True)
            with (own / STATES_NAME).open("wb") as file, evaluating(model), torch.no_grad():
                index = _write_states(file, model, branch_layer, dataset, runtime)
        except OSError as error:
            raise write_failure(error, own / STATES_NAME) from error
        write_bytes(own / INDEX_NAME, json.dumps(index).encode())  # last: it says that the states are complete
    return TrunkOutputs(own, dataset)


def _write_states(
    file: BinaryIO, model: Transformer, branch_layer: int, dataset: Dataset, runtime: Runtime
) -> dict[str, Any]:
    """Append the states of all samples; returns the index."""
    ids: list[str] = []
    lengths: list[int] = []
    pooled: list[int] = []
    steps = model.order.index(branch_layer)
    inputs = read_ahead(batches(dataset, preprocessor(model), batch_size=runtime.batch_size))
    for batch in progress(inputs, "trunk", -(-len(dataset) // runtime.batch_size)):
        hidden = model.embed(to_device(batch.inputs, runtime.torch_device()))
        hidden = model.run_layers(hidden, stop=steps)
        if hidden.mask is not None and hidden.mask.dim() != 2:
            raise UsageError(
                "the trunk's outputs cannot be kept for a model whose masks differ from token to token",
                where="--keep-trunk-outputs",
                fix="leave it out",
            )
        states = hidden.states.float().cpu()
        real = torch.ones(states.shape[:2], dtype=torch.bool) if hidden.mask is None else hidden.mask.cpu()
        file.write(states[real].numpy().tobytes())
        ids += batch.ids
        lengths += real.sum(1).tolist()
        if isinstance(hidden.pooled, Tensor):  # its place among the real tokens
            before = real.cumsum(1).gather(1, hidden.pooled.cpu()[:, None])[:, 0] - 1
            pooled += before.tolist()
    return {
        "ids": ids,
        "lengths": lengths,
        "pooled": pooled or None,
        "first_pooled": hidden.pooled if isinstance(hidden.pooled, int) else None,
        "masked": hidden.mask is not None,
        "width": hidden.states.shape[2],
        "steps": steps,
    }


def _identity(model: Transformer, branch_layer: int, dataset: Dataset) -> str:
    """sha256 of the trunk's weights and heads and of the data."""
    digest = hashlib.sha256(dataset.fingerprint.encode())
    digest.update(repr(model.structure.kept_heads[:branch_layer]).encode())
    for module in (model.stem, *list(model.layers)[:branch_layer]):
        for name, tensor in module.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()))
    return digest.hexdigest()
