"""Where an artifact came from: the content of ``provenance.json``."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from pydantic import Field

from compress.options import Options

# What later stages keep of a parent's notes: the report of a fused model shows why its members part where they do.
BRANCH_CANDIDATES = "branch_candidates"
VERSIONED = ("compress-transformers", "torch", "timm", "transformers", "open_clip_torch", "safetensors")


def installed_versions() -> dict[str, str]:
    """Versions of the packages that decide what a model computes."""
    found = {}
    for name in VERSIONED:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Provenance(Options):
    """How an artifact was made; no times, latencies or absolute paths, so equal runs give equal files."""

    stage: str = Field(description="The stage that wrote the artifact.")
    options: dict[str, Any] = Field(default_factory=dict, description="The stage's options as they were resolved.")
    parents: tuple[str, ...] = Field((), description="Hashes of the models that it was made from.")
    data_fingerprint: str | None = Field(None, description="sha256 of the data that the stage read.")
    notes: dict[str, Any] = Field(default_factory=dict, description="What the stage measured about its own work.")
    versions: dict[str, str] = Field(
        default_factory=installed_versions, description="Installed packages that decide what a model computes."
    )

    def handed_down(self) -> dict[str, Any]:
        """The notes that hold for whatever is made from the artifact."""
        return {key: self.notes[key] for key in (BRANCH_CANDIDATES,) if key in self.notes}
