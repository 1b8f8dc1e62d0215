"""Programs of ``torch.export``: for Python and C++ with torch, without the code of the model."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor
from torch.export import ExportedProgram

from compress.exporting.metadata import KEY, ExportMetadata
from compress.exporting.options import Export
from compress.exporting.trial import Answer
from compress.transformer.parts import Inputs

METADATA_FILE = f"{KEY}.json"


class ProgramFormat:
    """A ``.pt2`` file."""

    name = "torch.export"
    largest_bytes = None

    def check_installed(self) -> None:
        """See ``FileFormat``: torch is all it takes."""

    def write(self, program: ExportedProgram, metadata: ExportMetadata, options: Export, file: BinaryIO) -> None:
        """See ``FileFormat``."""
        for node in program.graph.nodes:  # lines of Python, with the paths of this machine
            node.meta.pop("stack_trace", None)
        buffer = io.BytesIO()  # torch's writer ends the process when a disk is full
        torch.export.save(program, buffer, extra_files={METADATA_FILE: metadata.to_json()})
        file.write(buffer.getbuffer())

    def open(self, path: Path) -> Answer:
        """See ``FileFormat``."""
        with path.open("rb") as file:
            module = torch.export.load(file).module()

        def answer(inputs: Inputs) -> Mapping[str, Tensor]:
            with torch.no_grad():
                found: Mapping[str, Tensor] = module(inputs)
            return found

        return answer


FORMAT = ProgramFormat()
