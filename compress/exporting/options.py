"""Options of ``export``."""

from __future__ import annotations

from pydantic import Field

from compress.options import Options


class Export(Options):
    """How the file is written."""

    opset: int = Field(18, ge=18, le=22, description="Version of ONNX's operators; a .pt2 file has none.")
