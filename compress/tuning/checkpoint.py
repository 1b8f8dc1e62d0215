"""What a checkpoint holds besides the progress: weights and moments through accelerate, and the best weights so far."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from torch import Tensor

from compress.artifact.durable import write_failure
from compress.artifact.tensors import read_tensors, tensor_entries, write_tensors
from compress.errors import ArtifactError, first_line
from compress.tuning.engine import Machine
from compress.tuning.state import CheckpointStore, Progress

BEST = "best.safetensors"
SCRATCH = ".scratch"


def save_checkpoint(store: CheckpointStore, machine: Machine, progress: Progress, best: Mapping[str, Tensor]) -> None:
    """Save the state of all processes; every one calls this at the same step."""
    scratch = store.folder / SCRATCH
    machine.team.on_main(lambda: shutil.rmtree(scratch, ignore_errors=True))
    try:
        machine.accelerator.save_state(str(scratch))
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have writers of their own
        raise _refused(error, scratch) from error
    machine.accelerator.wait_for_everyone()

    def move(partial: Path) -> None:
        try:
            for file in scratch.iterdir():
                file.rename(partial / file.name)
        except OSError as error:
            raise write_failure(error, partial) from error
        if best:
            entries, ties = tensor_entries(best)
            write_tensors(partial / BEST, entries, ties=ties)

    machine.team.on_main(lambda: store.save(progress, move))
    machine.team.on_main(lambda: shutil.rmtree(scratch, ignore_errors=True))


def _refused(error: Exception, path: Path) -> ArtifactError:
    if isinstance(error, OSError):
        return write_failure(error, path)
    return ArtifactError(
        f"the state of the training cannot be written ({first_line(error)})",
        where=str(path),
        fix="free some space or write to another disk, and repeat the call, which goes on from the last checkpoint",
    )


def load_checkpoint(store: CheckpointStore, machine: Machine) -> tuple[Progress, dict[str, Tensor]] | None:
    """Put the newest checkpoint into what the accelerator has prepared; None when there is none."""
    found = machine.team.on_main(store.newest)
    if found is None:
        return None
    path, progress = found
    machine.accelerator.load_state(str(path))
    stored = read_tensors(path / BEST) if (path / BEST).exists() else {}
    return progress, {name: stored[name].clone() for name in stored}  # the file goes with the next checkpoint
