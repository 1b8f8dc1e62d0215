"""What a file says about itself: everything that its consumer needs beside the graph."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field
from torch import Tensor

from compress.artifact.provenance import installed_versions
from compress.data.preprocessing import Preprocessing
from compress.exporting.graph import BATCH, OUTPUTS, axes, named
from compress.options import Options
from compress.transformer.config import Abstention
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

KEY = "compress"
"""Its name among the metadata of an ONNX file, and, with ``.json``, among the extra files of a .pt2."""


class TensorDescription(Options):
    """An input or an output of the graph."""

    name: str = Field(description="Name in the graph.")
    shape: tuple[int | str, ...] = Field(description="Sizes; a word stands for any size.")
    dtype: str = Field(description="Number format.")


class ExportMetadata(Options):
    """The JSON in the metadata of an exported file, version 1."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/exported"] = Field(
        "compress/exported", alias="schema", description="Tells what it is."
    )
    schema_version: Literal[1] = Field(1, description="Grows when a field changes its meaning or goes.")
    architecture: str = Field(description="The model family's own name of the original architecture.")
    digest: str = Field(description="Hash of the artifact; of configuration and weights when the model is none.")
    members: int = Field(ge=1, description="M, the members whose probabilities are averaged.")
    labels: tuple[str, ...] = Field(description="Class names, in the order of the probabilities.")
    preprocessing: Preprocessing = Field(discriminator="kind", description="From a raw sample to the graph's input.")
    temperature: float = Field(gt=0, description="The logits are divided by it already.")
    abstention: Abstention | None = Field(description="When to abstain; null when nothing was fitted.")
    rule: str | None = Field(None, description="The same in words: abstains when the probability is below 0.94.")
    inputs: tuple[TensorDescription, ...] = Field(description="In order.")
    outputs: tuple[TensorDescription, ...] = Field(description="In order.")
    versions: dict[str, str] = Field(description="Packages with which the file was made.")

    def to_json(self) -> str:
        """One line of JSON."""
        return self.model_dump_json(by_alias=True)


def describe(model: Transformer, example: Inputs, digest: str) -> ExportMetadata:
    """The metadata of a model's file.

    Args:
        model: what is exported, in float32.
        example: a batch of its inputs.
        digest: of the artifact.
    """
    config, classes = model.config, len(model.labels)
    free = axes(example)
    shapes: dict[str, tuple[int | str, ...]] = {
        "probabilities": (BATCH, classes),
        "member_logits": (BATCH, config.structure.members, classes),
    }
    return ExportMetadata(
        architecture=config.backbone.architecture,
        digest=digest,
        members=config.structure.members,
        labels=config.labels,
        preprocessing=config.preprocessing,
        temperature=config.temperature,
        abstention=config.abstention,
        rule=None if config.abstention is None else config.abstention.rule,
        inputs=tuple(_described(name, tensor, free[name]) for name, tensor in named(example).items()),
        outputs=tuple(TensorDescription(name=name, shape=shapes[name], dtype="float32") for name in OUTPUTS),
        versions=installed_versions(),
    )


def _described(name: str, tensor: Tensor, free: dict[int, str]) -> TensorDescription:
    shape = tuple(free.get(axis, size) for axis, size in enumerate(tensor.shape))
    return TensorDescription(name=name, shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))
