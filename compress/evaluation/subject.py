"""What is evaluated: a model or several separate ones, however the user named it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from compress.artifact.folder import verify_folder
from compress.artifact.manifest import Manifest, read_manifest
from compress.artifact.store import load_model
from compress.errors import ModelError
from compress.evaluation.joined_heads import Heads, ModelHeads, first_difference, joined_heads
from compress.opening import artifact_folder, open_model
from compress.runtime import Runtime
from compress.transformer.config import Structure
from compress.transformer.cost import count_cost, count_parameters
from compress.transformer.ensemble import Ensemble
from compress.transformer.mc_dropout import MonteCarloDropout
from compress.transformer.model import Transformer
from compress.transformer.parting import parting_layer


@dataclass
class Subject:
    """One row of the comparison.

    Attributes:
        name: its name in the table.
        module: a ``Transformer``, or several or several passes together; on the device and in the number format of
            the run.
        reference: how the user named it.
        manifest: of the artifact; None for a model that is none.
        folder: of the artifact.
        parts: what a baseline was put together from.
        baseline: the word of the baseline that it is; empty for a model.
        settings: what the baseline chose, such as a temperature.
        passes: forward passes per prediction.
        parting: of a set of members, the first layer that these cannot share.
    """

    name: str
    module: Transformer | Ensemble | MonteCarloDropout
    reference: str = ""
    manifest: Manifest | None = None
    folder: Path | None = None
    parts: tuple[Subject, ...] = ()
    baseline: str = ""
    settings: dict[str, float] = field(default_factory=dict)
    passes: int = 1
    parting: int | None = None
    _flops: dict[int | None, tuple[float, float]] = field(default_factory=dict)

    @property
    def models(self) -> Sequence[Transformer]:
        """The transformers inside."""
        if isinstance(self.module, Transformer):
            return [self.module]
        return [model for model in self.module.models if isinstance(model, Transformer)]

    @property
    def kind(self) -> str:
        """single, pruned, members (separate models), fused, or the word of a baseline."""
        if self.baseline:
            return self.baseline
        if len(self.models) > 1:
            return "members"
        structure = self.models[0].structure
        if structure.members > 1:
            return "fused"
        whole = Structure.original(structure.original_heads).kept_heads == structure.kept_heads
        return "single" if whole else "pruned"

    @property
    def members(self) -> int:
        """M, the number of predictions that are averaged."""
        return self.passes * sum(model.structure.members for model in self.models)

    @property
    def kept_heads(self) -> Heads | None:
        """``[layer][member]``; None for models of different architectures. See ``joined_heads``."""
        structures = [model.structure for model in self.models]
        return joined_heads([ModelHeads(own.original_heads, own.kept_heads, own.members) for own in structures])

    @property
    def branch_layer(self) -> int:
        """The first layer in which members differ; of a set of members, that of the model which ``fuse`` makes."""
        if len(self.models) == 1:
            return self.models[0].structure.branch_layer
        return first_difference(self.kept_heads) if self.parting is None else self.parting

    @property
    def parameters(self) -> int:
        """Parameters of all models together."""
        return sum(count_parameters(model) for model in self.models)

    @property
    def bytes_on_disk(self) -> int | None:
        """Size of the artifacts' files, those of members included; None when a model is no artifact."""
        if self.parts:
            sizes = [part.bytes_on_disk for part in self.parts]
            return None if None in sizes else sum(size for size in sizes if size is not None)
        if self.manifest is None or self.folder is None:
            return None
        parts = [self.manifest, *(read_manifest(self.folder / member) for member in self.manifest.members)]
        return sum(record.bytes for part in parts for record in part.files.values())

    def flops(self, length: int | None) -> tuple[float, float]:
        """FLOPs of one input of ``length`` tokens, or of the model's own size, and those of its attentions."""
        if length not in self._flops:
            costs = [count_cost(model, length=length) for model in self.models]
            whole, attention = sum(cost.flops for cost in costs), sum(cost.attention_flops for cost in costs)
            self._flops[length] = float(self.passes * whole), float(self.passes * attention)
        return self._flops[length]


def open_subject(name: str, given: str | Path | nn.Module, runtime: Runtime) -> Subject:
    """Open a model, or a set of pruned members as an ensemble, and bring it to where the run computes.

    Raises:
        CompressError: it cannot be opened.
    """
    subject = _open(name, given)
    device, dtype = runtime.torch_device(), runtime.torch_dtype()
    if any(
        tensor.device != device or (tensor.is_floating_point() and tensor.dtype != dtype)
        for tensor in _tensors(subject.module)
    ):
        # A caller's own model stays as it is.
        subject.module = (copy.deepcopy(subject.module) if given is subject.module else subject.module).to(
            device, dtype
        )
    subject.module.eval()
    return subject


def _open(name: str, given: str | Path | nn.Module) -> Subject:
    if isinstance(given, Transformer | Ensemble):
        return Subject(name, given)
    if isinstance(given, nn.Module):
        raise ModelError(
            f"{type(given).__name__} is not a model of this library", where=name, fix="give what compress.load returns"
        )
    folder = artifact_folder(given)
    if folder is None:
        return Subject(name, open_model(given), str(given))
    manifest = read_manifest(folder)
    if manifest.kind != "members":
        return Subject(name, load_model(folder), str(given), manifest, folder)
    verify_folder(folder)
    models = [load_model(folder / member) for member in manifest.members]
    return Subject(name, Ensemble(models), str(given), manifest, folder, parting=_parting(models))


def _parting(models: Sequence[Transformer]) -> int | None:
    """Where the members of a set part, by the weights as they are stored; None for different architectures."""
    if any(model.config.backbone != models[0].config.backbone for model in models):
        return None
    return parting_layer([model.structure for model in models], [model.state_dict() for model in models])


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
