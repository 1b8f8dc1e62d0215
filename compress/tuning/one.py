"""One model, single or fused, trained and written as one artifact."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from typing import Any

from compress.artifact.store import save_model
from compress.parent import Parent
from compress.transformer.model import Transformer
from compress.tuning.job import Job, Tuned
from compress.tuning.log import LOG_NAME
from compress.tuning.options import Tune
from compress.tuning.state import held_state


def tune_one(
    job: Job,
    model: Transformer,
    parent: Parent,
    options: Tune,
    branch_layer: int = 0,
    *,
    finish: Callable[[Transformer, Tuned], dict[str, Any]] | None = None,
) -> Tuned:
    """Train ``model`` in place and write it to ``job.out``; a call that was interrupted goes on.

    Args:
        job: data and settings.
        model: what is trained.
        parent: what it was made from; its hash and the job's options tell this run from any other.
        options: the job's, resolved.
        branch_layer: the first layer that is not of the trunk.
        finish: looks at the trained model before it is written; what it returns goes into the provenance.
    """
    with held_state(job.out, job.identity(parent.digest), job.team) as state:
        tuned = job.train(model, state, name="model", options=options, branch_layer=branch_layer)
        notes = {} if finish is None else finish(model, tuned)
        provenance = job.provenance(options, (parent.digest,), tuned, **{**parent.notes, **notes})

        def write() -> None:
            save_model(model, job.out, provenance, overwrite=job.overwrite)
            # Beside the artifact, not of it: it holds times, which differ from run to run.
            with contextlib.suppress(OSError):
                shutil.copyfile(state / LOG_NAME, job.out / LOG_NAME)

        job.team.on_main(write)
    return tuned
