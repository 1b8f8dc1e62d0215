"""ONNX files, written by torch's own exporter and run by onnxruntime."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.export import ExportedProgram

from compress.errors import UsageError
from compress.exporting.graph import OUTPUTS, named
from compress.exporting.metadata import KEY, ExportMetadata
from compress.exporting.options import Export
from compress.exporting.trial import Answer
from compress.transformer.parts import Inputs

PACKAGES = ("onnx", "onnxscript", "onnxruntime")


class OnnxFormat:
    """One self-contained ``.onnx`` file."""

    name = "ONNX"
    largest_bytes = 2**31 - 2**24  # protocol buffers end at 2 GiB, and the rest is for the graph

    def check_installed(self) -> None:
        """See ``FileFormat``."""
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(
                f"without {', '.join(missing)} no ONNX file can be written and checked",
                where="export",
                fix="pip install 'compress-transformers[export]'",
            )

    def write(self, program: ExportedProgram, metadata: ExportMetadata, options: Export, file: BinaryIO) -> None:
        """See ``FileFormat``."""
        from compress.exporting.onnx_attention import masked_attention

        first, *others = metadata.inputs
        free = {axis: size for axis, size in enumerate(first.shape) if isinstance(size, str)}
        exported: Any = torch.onnx.export(
            program,
            input_names=[tensor.name for tensor in metadata.inputs],
            output_names=list(OUTPUTS),
            opset_version=options.opset,
            dynamic_shapes=[free, *[None] * len(others)],  # names alone; the other inputs share the first one's
            custom_translation_table={torch.ops.aten.scaled_dot_product_attention.default: masked_attention},
            dynamo=True,
            verbose=False,
        )
        _forget_sources(exported.model)
        exported.model.metadata_props[KEY] = metadata.to_json()
        file.write(exported.model_proto.SerializeToString())

    def open(self, path: Path) -> Answer:
        """See ``FileFormat``."""
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

        def answer(inputs: Inputs) -> Mapping[str, Tensor]:
            feeds = {name: tensor.numpy() for name, tensor in named(inputs).items()}
            found = session.run(list(OUTPUTS), feeds)
            return {name: torch.from_numpy(array) for name, array in zip(OUTPUTS, found, strict=True)}

        return answer


def _forget_sources(model: Any) -> None:
    """Drop the lines of Python that the exporter notes at every node, with the paths of this machine."""
    model.graph.metadata_props.clear()
    for node in model.graph:
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()


FORMAT = OnnxFormat()
