"""Separate members, each trained with its own data order and seed around the trunk that they share."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from compress.artifact.durable import write_bytes
from compress.artifact.folder import new_folder, verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.artifact.store import PROVENANCE, json_bytes, load_model, read_provenance, save_model
from compress.errors import ArtifactError, UsageError
from compress.tuning.job import Job, Tuned
from compress.tuning.log import LOG_NAME, last_loss
from compress.tuning.options import Tune
from compress.tuning.seeds import derived_seed
from compress.tuning.state import clear_broken, held_state

BRANCH_LAYER = "branch_layer"


def branch_layer_of(folder: Path) -> int:
    """The first layer in which the members of a set may differ, as ``prune`` or ``tune`` wrote it down."""
    provenance = read_provenance(folder)
    found = provenance.notes.get(BRANCH_LAYER, provenance.options.get(BRANCH_LAYER, 0))
    return found if isinstance(found, int) else 0


def tune_members(job: Job, folder: Path) -> tuple[Tuned, ...]:
    """Train every member of the set in ``folder`` and write a set that ``fuse`` accepts.

    Members that were finished before an interruption are not trained again.

    Raises:
        UsageError: random weights are asked for, in which members have nothing in common.
        CompressError: as ``tune``.
    """
    if job.options.from_scratch:
        raise UsageError(
            "pruned members have no random weights", where="--from-scratch", fix="train the model before pruning it"
        )
    manifest = verify_folder(folder, expect_kind="members")
    branch_layer = branch_layer_of(folder)
    freeze = job.options.freeze or ("trunk" if branch_layer else "none")
    options = job.options.model_copy(update={"freeze": freeze})
    with held_state(job.out, job.identity(manifest.digest), job.team) as state:
        tuned = []
        for number, name in enumerate(manifest.members):
            own = options.model_copy(update={"seed": derived_seed(options.seed, "member", number) % 2**31})
            tuned.append(_tune_member(job, folder / name, state, own, branch_layer))
        job.team.on_main(lambda: _write_set(job, folder, manifest.members, state, options, branch_layer))
    return tuple(tuned)


def _tune_member(job: Job, source: Path, state: Path, options: Tune, branch_layer: int) -> Tuned:
    """Train one member, unless it was finished before; the artifact lies in the state until all are there."""
    name, finished = source.name, state / source.name
    known = job.team.on_main(lambda: _finished(finished))
    if known is not None:
        return known
    model = load_model(source)
    training = state / f"{name}.training"
    tuned = job.train(model, training, name=name, options=options, branch_layer=branch_layer, trunk_folder=state)
    # The first parent stays the model that all members were pruned from: by it fuse knows that they belong together.
    root = read_provenance(source).parents[:1]
    provenance = job.provenance(options, (*root, verify_folder(source).digest), tuned)

    def write() -> None:
        clear_broken(finished)
        save_model(model, finished, provenance, overwrite=True)
        with contextlib.suppress(OSError):
            shutil.copyfile(training / LOG_NAME, finished / LOG_NAME)
        shutil.rmtree(training, ignore_errors=True)

    job.team.on_main(write)
    return tuned


def _finished(folder: Path) -> Tuned | None:
    """What is known of a member that an interrupted call had finished."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    try:
        verify_folder(folder, expect_kind="model")
    except ArtifactError:
        return None
    notes = read_provenance(folder).notes
    values = {key: notes.get(key) for key in ("metric", "before", "after", "best_step")}
    return Tuned(folder.name, notes["steps"], **values, loss=last_loss(folder / LOG_NAME))


def _write_set(job: Job, source: Path, names: tuple[str, ...], state: Path, options: Tune, branch_layer: int) -> None:
    with new_folder(job.out, kind="members", stage="tune", overwrite=job.overwrite, members=names) as partial:
        for name in names:
            shutil.copytree(state / name, partial / name, copy_function=_link_or_copy)
        made = read_provenance(source)
        notes = {**made.handed_down(), BRANCH_LAYER: branch_layer}
        provenance = job.provenance(options, made.parents[:1], None, **notes)
        write_bytes(partial / PROVENANCE, json_bytes(provenance.model_dump_json()))


def _link_or_copy(source: str, target: str) -> None:
    """A second name for a file, or a synced copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError:
        write_bytes(Path(target), Path(source).read_bytes())
