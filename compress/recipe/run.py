"""Execute a recipe's stages into ``OUT/01-prune``, ``OUT/02-fuse``, ..., skipping those that are there already."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import compress
from compress.artifact.durable import write_bytes
from compress.artifact.folder import verify_folder
from compress.artifact.manifest import MANIFEST_NAME
from compress.artifact.run_folder import opened_run
from compress.distributed import processes
from compress.errors import ArtifactError, CompressError, UsageError
from compress.options import Options
from compress.recipe.chain import check_chain
from compress.recipe.keys import model_identity, reference_identity, stage_key
from compress.recipe.log import stage_log
from compress.recipe.readiness import artifact_config, check_data
from compress.recipe.schema import Recipe, StageEntry
from compress.recipe.stages import STAGES
from compress.recipe.stages.base import (
    FOREIGN_ROLE,
    RECIPE_MODEL_LABEL,
    Kind,
    Stage,
    StageInputs,
    StageReport,
    open_recipe_data,
)
from compress.recipe.state import StageRecord, read_record, write_record
from compress.registry import Registry

RESOLVED_NAME = "recipe.yaml"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageOutcome:
    """A stage of a run that is complete.

    Attributes:
        entry: the stage.
        folder: its artifact.
        digest: the artifact's hash.
        computed: whether it was computed now; False when it was there already.
        report: what it has to say; None for most stages.
    """

    entry: StageEntry
    folder: Path
    digest: str
    computed: bool
    report: StageReport | None = None


@dataclass(frozen=True)
class RunResult:
    """A complete run: its folder and its stages, in order."""

    out: Path
    outcomes: tuple[StageOutcome, ...]

    def failed_gates(self) -> tuple[str, ...]:
        """One sentence per ``fail_if`` gate that failed, with the stage it belongs to."""
        return tuple(
            f"{outcome.folder.name}: {gate}"
            for outcome in self.outcomes
            if outcome.report is not None
            for gate in outcome.report.failed_gates
        )

    def table(self) -> str:
        """The tables of the stages that have one, and where everything is."""
        tables = [outcome.report.table for outcome in self.outcomes if outcome.report is not None]
        room = max(len(str(outcome.folder)) for outcome in self.outcomes)
        places = [
            f"{outcome.folder!s:<{room}}  {'computed' if outcome.computed else 'up to date'}"
            for outcome in self.outcomes
        ]
        return "\n\n".join([*tables, "\n".join(places)])

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        stages = [
            {
                "stage": outcome.entry.stage,
                "name": outcome.entry.name,
                "folder": str(outcome.folder),
                "digest": outcome.digest,
                "computed": outcome.computed,
                "result": None if outcome.report is None else outcome.report.plain,
            }
            for outcome in self.outcomes
        ]
        return {"schema": "compress/run", "schema_version": 1, "out": str(self.out), "stages": stages}


def run_recipe(
    recipe: Recipe,
    out: Path,
    *,
    fresh: bool = False,
    stages: Registry[type[Stage[Any]]] = STAGES,
    finished: Callable[[StageOutcome], None] | None = None,
) -> RunResult:
    """Run a recipe. After an interruption the same call continues where it stopped.

    A stage is skipped when its key (``compress.recipe.keys``) is the recorded one, its artifact has the recorded digest
    and every file of it is intact. A stage that is computed again to the same digest leaves the later ones valid.

    Args:
        recipe: the recipe.
        out: folder of the run; created, or that of an earlier run.
        fresh: compute every stage again.
        stages: the stages that exist.
        finished: called with each stage as soon as it is complete.

    Raises:
        CompressError: the recipe cannot work, data or the model cannot be opened, or a stage failed; the stages that
            were complete stay so.
    """
    check_chain(recipe, stages)
    if processes(recipe.runtime.torch_device()).count > 1:
        raise UsageError(
            "a recipe runs in a single process", fix="run it without the launcher, or launch its stages one by one"
        )
    with opened_run(out):
        # A path may hold bytes that are no UTF-8; they are kept as Python reads them.
        write_bytes(out / RESOLVED_NAME, recipe.to_yaml().encode(errors="surrogateescape"))
        run = _Run(recipe, out, stages, fresh, parents=[model_identity(recipe.model)])
        fingerprints = [run.fingerprints(entry) for entry in recipe.stages]
        outcomes: list[StageOutcome] = []
        for folder, entry, data in zip(recipe.folder_names(), recipe.stages, fingerprints, strict=True):
            outcome = run.stage(out / folder, entry, data)
            outcomes.append(outcome)
            if finished is not None:
                finished(outcome)
    return RunResult(out, tuple(outcomes))


@dataclass
class _Run:
    """The state that one stage hands to the next."""

    recipe: Recipe
    out: Path
    stages: Registry[type[Stage[Any]]]
    fresh: bool
    parents: list[str]
    current: Path | None = None
    kind: Kind = "model"
    label: str = RECIPE_MODEL_LABEL
    artifacts: dict[Kind, Path] = field(default_factory=dict)
    known_fingerprints: dict[tuple[str, bool], str] = field(default_factory=dict)
    checked: bool = False

    def fingerprints(self, entry: StageEntry) -> dict[str, str]:
        """Fingerprints of the data of a stage, by role."""
        found = {}
        for role, reference in self.stages[entry.stage]().data(self.recipe.data, entry.options).items():
            known = (reference, not role.startswith(FOREIGN_ROLE))
            if known not in self.known_fingerprints:
                data = open_recipe_data(self.recipe.data, reference, labelled=known[1])
                self.known_fingerprints[known] = data.fingerprint
            found[role] = self.known_fingerprints[known]
        return found

    def stage(self, folder: Path, entry: StageEntry, fingerprints: Mapping[str, str]) -> StageOutcome:
        """Skip or compute one stage, and take over what it made."""
        stage = self.stages[entry.stage]()
        others = [reference_identity(reference) for reference in stage.models(entry.options)]
        key = stage_key(self.recipe, entry, [*self.parents, *others], fingerprints)
        outcome = None if self.fresh else self._finished(stage, folder, entry, key)
        if outcome is None:
            self._check_ready()
            outcome = self._computed(stage, folder, entry, key)
        # What makes no model, such as an evaluation with its latencies, is no parent of what follows.
        made = stage.made_from(self.kind)
        if made is not None:
            self.parents.append(outcome.digest)
            self.current, self.kind = folder, made
            self.artifacts[made] = folder
            self.label = stage.artifact_label(entry)
        return outcome

    def _check_ready(self) -> None:
        """Before the first stage that is computed: no later one may fail for data that are known now.

        The classes of a family's model are known only when it is opened, which is left to the stages.
        """
        if not self.checked:
            config = artifact_config(self.recipe.model)
            if config is not None:
                check_data(self.recipe, config, self.stages)
            self.checked = True

    def _finished(self, stage: Stage[Options], folder: Path, entry: StageEntry, key: str) -> StageOutcome | None:
        """The outcome of an earlier run if it is still right; else None, and the log says why."""
        record = read_record(self.out, folder.name)
        if record is None:
            reason = "its record is missing" if folder.exists() else ""
        elif record.key != key:
            reason = "its options, its data or a stage before it changed"
        else:
            try:
                digest = verify_folder(folder).digest
                if digest == record.digest:
                    logger.info("%s: up to date", folder.name)
                    return StageOutcome(entry, folder, digest, False, stage.report(folder, entry.options))
                reason = "its artifact was replaced"
            except ArtifactError as error:
                reason = f"its artifact is broken ({error.what}: {error.where})"
        logger.info("%s: %s", folder.name, f"computing again, {reason}" if reason else "computing")
        return None

    def _computed(self, stage: Stage[Options], folder: Path, entry: StageEntry, key: str) -> StageOutcome:
        if not (folder / MANIFEST_NAME).is_file() and read_record(self.out, folder.name) is not None:
            # Ours by the record, but no longer recognisable as an artifact, which --overwrite alone would refuse.
            shutil.rmtree(folder, ignore_errors=True)
        inputs = StageInputs(self.recipe, folder, self.current, self.label, dict(self.artifacts))
        options = entry.options.model_dump_json(exclude_defaults=True)
        with stage_log(self.out, folder.name, f"compress {compress.__version__}, {entry.stage} {options}"):
            try:
                stage.execute(inputs, entry.options)
                digest = verify_folder(folder).digest
                report = stage.report(folder, entry.options)
                write_record(self.out, folder.name, StageRecord(key=key, digest=digest))
            except CompressError as error:
                error.where = f"stage {folder.name}, {error.where}" if error.where else f"stage {folder.name}"
                raise
        return StageOutcome(entry, folder, digest, True, report)


def describe_complete(outcomes: Sequence[StageOutcome]) -> str:
    """Which artifacts exist, for the last line of a run that failed or was interrupted."""
    if not outcomes:
        return "no stage was completed"
    return (
        f"complete so far: {', '.join(str(outcome.folder) for outcome in outcomes)}; the next run continues from there"
    )
