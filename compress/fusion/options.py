"""Options of the ``fuse`` stage."""

from __future__ import annotations

from pydantic import Field

from compress.options import Options
from compress.transformer.config import StreamMlp


class Fuse(Options):
    """Fuse pruned members into one model."""

    mlp: StreamMlp = Field(
        "averaged", description="averaged: one MLP for all members; grouped: each member keeps its own (more memory)."
    )
    allow_different_parents: bool = Field(False, description="Fuse members that were not pruned from the same model.")
