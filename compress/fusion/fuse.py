"""The ``fuse`` stage: pruned copies in, one model out."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from compress.artifact.folder import check_target, verify_folder
from compress.artifact.manifest import read_manifest
from compress.artifact.provenance import Provenance
from compress.artifact.store import (
    PROVENANCE,
    WEIGHTS,
    load_tensors,
    read_provenance,
    stored_skeleton,
    write_model,
)
from compress.artifact.tensors import TensorFile
from compress.backbones.registry import build_skeleton
from compress.errors import ModelError, SelfCheckError
from compress.fusion.agreement import check_members, fused_config
from compress.fusion.merge import equal_in_all, fused_entries, merges_exactly
from compress.fusion.options import Fuse
from compress.transformer.config import ModelConfig, Structure
from compress.transformer.model import Transformer

log = logging.getLogger(__name__)
TOLERANCE = 1e-5


@dataclass(frozen=True)
class FuseResult:
    """What ``fuse`` wrote.

    Attributes:
        folder: the fused artifact.
        members: M.
        branch_layer: the first layer with M streams.
        exact: whether member m of the fused model equals pruned copy m, because no weight that differs is averaged.
    """

    folder: Path
    members: int
    branch_layer: int
    exact: bool

    def table(self) -> str:
        """A short text for the terminal."""
        trunk = (
            f"one stream below layer {self.branch_layer}" if self.branch_layer else "streams from the first layer on"
        )
        agreement = (
            "equal to the separate members" if self.exact else "weights that the members tuned apart are averaged"
        )
        return f"{self.members} members fused in {self.folder}: {trunk}; {agreement}"

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True)
class _Member:
    """A pruned copy that is read but not loaded."""

    name: str
    skeleton: Transformer
    state: TensorFile
    parent: str


def fuse(pruned: str | Path, out: str | Path, *, options: Fuse | None = None, overwrite: bool = False) -> FuseResult:
    """Fuse the members that ``prune`` wrote into one model with one stream below the branch layer and M from it on.

    Args:
        pruned: folder of a complete set of members.
        out: folder to write.
        options: see ``Fuse``.
        overwrite: replace an artifact that is there.

    Raises:
        ArtifactError: ``pruned`` is incomplete or damaged; ``out`` cannot be written.
        ModelError: the members do not fit each other.
        SelfCheckError: the result disagrees with the separate members; nothing is written.

    Source: Hydra Ensembles, arXiv 2510.18358, section 3. The trunk that members share is computed once, which changes
    no result. Tensors are merged and written one at a time, and the self-check reads the written file: beside mapped
    files, one tensor and one forward pass are in memory.
    """
    options = options or Fuse()
    pruned, out = Path(pruned), Path(out)
    check_target(out, overwrite=overwrite, inputs=(pruned,))
    manifest = verify_folder(pruned, expect_kind="members")
    members = [_read_member(pruned / name) for name in manifest.members]
    config = _checked_config(members, options)
    skeletons, states = [member.skeleton for member in members], [member.state for member in members]
    _warn_of_identical(config.structure, states)
    files = skeletons[0].files
    fused = build_skeleton(config, files)
    exact = merges_exactly(fused, states)
    entries = list(fused_entries(fused, skeletons, states))
    _announce_memory(members, [torch.Size(entry.shape).numel() * entry.dtype.itemsize for entry in entries])

    def check(written: TensorFile) -> None:
        for member in members:
            member.state.release()
        load_tensors(fused, written, out / WEIGHTS, "fuse")
        _self_check(fused, [partial(_loaded, member) for member in members])

    provenance = Provenance(
        stage="fuse",
        options=options.model_dump(mode="json"),
        parents=(manifest.digest,),
        notes={
            **(read_provenance(pruned).handed_down() if PROVENANCE in manifest.files else {}),
            "branch_layer": config.structure.branch_layer,
            "exact": exact,
        },
    )
    write_model(
        config,
        entries,
        out,
        provenance,
        files=files,
        overwrite=overwrite,
        check=check if exact else None,
    )
    return FuseResult(out, len(members), config.structure.branch_layer, exact)


def _read_member(folder: Path) -> _Member:
    """A member of a set that was verified as a whole."""
    skeleton, state = stored_skeleton(folder, read_manifest(folder))
    parents = read_provenance(folder).parents
    return _Member(folder.name, skeleton, state, parents[0] if parents else "")


def _checked_config(members: Sequence[_Member], options: Fuse) -> ModelConfig:
    """The configuration of the result, after everything that could make fusing impossible was checked."""
    names = [member.name for member in members]
    if len({member.parent for member in members}) > 1 and not options.allow_different_parents:
        raise ModelError(
            "the members were pruned from different models",
            where=", ".join(names),
            fix="pass --allow-different-parents if meant",
        )
    states = [member.state for member in members]
    configs = [member.skeleton.config for member in members]
    check_members(configs, states, names)
    return fused_config(configs, states, options.mlp)


def _warn_of_identical(structure: Structure, states: Sequence[TensorFile]) -> None:
    """Say when no layer parts the members and nothing else differs."""
    parted = structure.members == 1 or structure.branch_layer < len(structure.kept_heads)
    if not parted and all(equal_in_all(name, states) for name in states[0]):
        log.warning(
            "the members are identical: the fused model is one model %d times; pass --max-overlap when pruning",
            structure.members,
        )


def _announce_memory(members: Sequence[_Member], output_bytes: Sequence[int]) -> None:
    """Log the peak before any tensor is read; ``output_bytes`` is the size of each tensor of the result."""
    stored = sum(
        torch.Size(member.state.shape(name)).numel() * member.state.dtype(name).itemsize
        for member in members
        for name in member.state
    )
    log.info(
        "fuse: maps %.1f MB of members, needs up to %.1f MB of memory for a tensor and its parts, writes %.1f MB",
        stored / 1e6,
        2 * max(output_bytes) / 1e6,
        sum(output_bytes) / 1e6,
    )


def _loaded(member: _Member) -> Transformer:
    load_tensors(member.skeleton, member.state, Path(member.name) / WEIGHTS, "prune")
    return member.skeleton


def _self_check(fused: Transformer, members: Sequence[Callable[[], Transformer]]) -> None:
    """Member m of the fused model must equal pruned copy m on the same input; one model is in memory at a time.

    The tolerance is 1e-5 of the largest logit, in float32; wider in narrower formats.
    """
    answers = []
    with torch.inference_mode():
        example = fused.stem.probe()
        together = fused.members(example)
        fused.to("meta")
        for load in members:
            member = load()
            answers.append(member.members(example))
            member.to("meta")
    apart = torch.cat(answers)
    worst = float((together - apart).abs().max())
    precision = torch.finfo(apart.dtype).eps / torch.finfo(torch.float32).eps
    if not worst <= TOLERANCE * precision * max(1.0, float(apart.abs().max())):
        raise SelfCheckError(
            f"the fused members differ from the separate ones by {worst:.1e}; nothing was written",
            where="fuse",
            fix="report this",
        )
