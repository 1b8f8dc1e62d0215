"""One pruned copy alone: what pruning does before anything is fused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from compress.artifact.manifest import read_manifest
from compress.errors import ModelError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.subject import Subject
from compress.opening import artifact_folder


def build(name: str, models: Sequence[str | Path | nn.Module], opening: Opening) -> Subject:
    """The first member of the set that ``compress prune`` wrote.

    Raises:
        ModelError: that is no set of members.
    """
    given = models[0]
    folder = None if isinstance(given, nn.Module) else artifact_folder(given)
    members = () if folder is None else read_manifest(folder).members
    if folder is None or not members:
        raise ModelError("is no set of pruned members", where=str(given), fix="give the folder of `compress prune`")
    return opening.subject(name, folder / members[0])
