"""What a stage starts from, as the provenance of its result tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.manifest import read_manifest
from compress.artifact.store import read_provenance
from compress.opening import artifact_folder
from compress.transformer.model import Transformer


@dataclass(frozen=True)
class Parent:
    """A model that another is made from.

    Attributes:
        digest: of its artifact; the fingerprint of its weights when it is none.
        notes: what its provenance hands down.
    """

    digest: str
    notes: Mapping[str, Any] = field(default_factory=dict)


def parent_of(reference: object, model: Transformer) -> Parent:
    """The parent that ``reference`` names, ``model`` having been opened from it, which verified the files.

    Raises:
        ArtifactError: an artifact that is damaged.
    """
    folder = artifact_folder(reference) if isinstance(reference, str | Path) else None
    if folder is None:
        return Parent(model_fingerprint(model))
    return Parent(read_manifest(folder).digest, read_provenance(folder).handed_down())
