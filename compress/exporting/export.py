"""``export``: one model as one file, which is compared with the model before it gets its name."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from compress.artifact.durable import durable_file
from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.manifest import read_manifest
from compress.errors import UnsupportedModelError
from compress.exporting.file_format import FileFormat, format_of
from compress.exporting.graph import traced
from compress.exporting.metadata import ExportMetadata, TensorDescription, describe
from compress.exporting.options import Export
from compress.exporting.target import check_file_target
from compress.exporting.trial import BATCH_SIZES, agreement, trial_batches
from compress.opening import artifact_folder, open_model
from compress.transformer.model import Transformer


@dataclass(frozen=True)
class ExportResult:
    """What ``export`` wrote.

    Attributes:
        file: its name.
        format: ONNX or torch.export.
        bytes: its size.
        difference: the largest between its answers and the model's; see ``agreement``.
        metadata: what the file says about itself.
    """

    file: Path
    format: str
    bytes: int
    difference: float
    metadata: ExportMetadata

    def table(self) -> str:
        """A short text for the terminal."""
        sizes = ", ".join(map(str, BATCH_SIZES))
        return "\n".join(
            [
                f"inputs   {', '.join(map(_told, self.metadata.inputs))}",
                f"outputs  {', '.join(map(_told, self.metadata.outputs))}",
                f"agrees with the model to {self.difference:.0e} in batches of {sizes}",
                f"{self.format}, {self.bytes / 1e6:.1f} MB; written to {self.file}",
            ]
        )

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        metadata = self.metadata.model_dump(mode="json", by_alias=True)
        return {**asdict(self), "file": str(self.file), "metadata": metadata}


def export(
    model: str | Path | Transformer, out: str | Path, *, options: Export | None = None, overwrite: bool = False
) -> ExportResult:
    """Write a model, original, pruned or fused, as an ONNX file or a program of ``torch.export``.

    The file takes what the model's own preprocessing gives, batches of any size, and gives ``probabilities (B, K)``,
    the mean over the members, and ``member_logits (B, M, K)``, both divided by the model's temperature already. It is
    in float32. It is read back and run beside the model on batches of several sizes before it gets its name.

    Args:
        model: see ``open_model``.
        out: file to write; its ending tells the kind: ``.onnx``, or ``.pt2`` for a program of ``torch.export``.
        options: see ``Export``.
        overwrite: replace a file that is there.

    Raises:
        UsageError: an unknown ending, or a package is missing.
        ArtifactError: a place that cannot be written, an artifact that is damaged, or a set of separate members.
        UnsupportedModelError: a model with budgets or routers, or one too large for the kind of file.
        SelfCheckError: the file disagrees with the model by more than 1e-4; it is not kept.
    """
    out, options = Path(out), options or Export()
    kind = format_of(out)
    check_file_target(out, overwrite=overwrite, inputs=(model,))
    kind.check_installed()
    opened = open_model(model)
    _refuse_attached(opened)
    running = (copy.deepcopy(opened) if opened is model else opened).to("cpu", torch.float32).eval()
    _check_size(running, kind)
    batches = trial_batches(running)
    metadata = describe(running, batches[-1], _digest(model, opened))
    program = traced(running, batches[-1])
    real = out.resolve()  # a link stays one
    with durable_file(real) as file:
        kind.write(program, metadata, options, file)
        file.flush()
        difference = agreement(running, kind.open(Path(file.name)), batches, out)
    return ExportResult(out, kind.name, real.stat().st_size, difference, metadata)


def _refuse_attached(model: Transformer) -> None:
    attached = model.config.attached
    if attached is not None:
        raise UnsupportedModelError(
            f"a model with {attached} decides from each input what it runs, and the graph of a file is fixed",
            where="export",
            fix="export the model that it was made from",
        )


def _check_size(model: Transformer, kind: FileFormat) -> None:
    size = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    limit = kind.largest_bytes
    if limit is not None and size > limit:
        raise UnsupportedModelError(
            f"the weights take {size / 2**30:.1f} GiB, and {kind.name} files hold {limit / 2**30:.1f} GiB at most",
            where="export",
            fix="write a .pt2 file, or prune more",
        )


def _digest(reference: str | Path | Transformer, model: Transformer) -> str:
    """The hash of the artifact that was read and verified; of the model itself when there is none."""
    folder = None if isinstance(reference, Transformer) else artifact_folder(reference)
    return model_fingerprint(model) if folder is None else read_manifest(folder).digest


def _told(tensor: TensorDescription) -> str:
    return f"{tensor.name} ({', '.join(map(str, tensor.shape))})"
