"""A sweep: every combination of a grid pruned, fused and evaluated in memory, from scores that are made once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compress.artifact.durable import write_bytes
from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.folder import hash_file
from compress.artifact.run_folder import STATE_FOLDER, opened_run
from compress.data.base import Dataset, given_dataset
from compress.distributed import Processes, processes
from compress.errors import ModelError, UsageError
from compress.evaluation.evaluate import run_evaluation
from compress.evaluation.options import Evaluate
from compress.evaluation.result import EvaluationResult
from compress.evaluation.summary import summary_of
from compress.fusion.in_memory import fuse_models
from compress.progress import progress
from compress.pruning.chooser import MemberChooser
from compress.pruning.masking import head_numbers
from compress.pruning.options import Prune, check_options, needs_labels
from compress.pruning.prune import SCORES, open_calibration, open_chooser, open_foreign, open_single
from compress.pruning.scores import scores_file
from compress.pruning.selection import MemberHeads
from compress.runtime import Runtime
from compress.sweeping.grid import Grid
from compress.sweeping.record import Record, read_record, record_key, write_record
from compress.sweeping.result import ACCURACY, DISAGREEMENT, ECE, SINGLE, SweepPoint, SweepResult
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads

log = logging.getLogger(__name__)
RESULT = "sweep.json"
TABLE = "sweep.txt"
PICTURE = "pareto"


def sweep(
    model: str | Path | Transformer,
    out: str | Path,
    *,
    grid: Grid,
    data: str | Dataset | None = None,
    validation: str | Dataset | None = None,
    ood: Mapping[str, str | Dataset] | None = None,
    ood_validation: str | Dataset | None = None,
    options: Prune | None = None,
    runtime: Runtime | None = None,
    scores: str | Path | None = None,
) -> SweepResult:
    """Compare fused models over a grid. After an interruption the same call continues at the point it had reached.

    Heads are scored once; for circuits there is one search per number of heads and branch layer, and what it found is
    kept too.

    Args:
        model: see ``open_model``.
        out: folder for ``sweep.json``, ``sweep.txt``, ``pareto.png``, ``pareto.svg`` and ``scores.safetensors``; new,
            or that of an earlier sweep.
        grid: the combinations.
        data: the calibration set, as for ``prune``.
        validation: labelled set on which the points are measured; by default the calibration set. Not the test set,
            which a choice made here would spoil.
        ood: foreign sets on which detection is measured, by name.
        ood_validation: foreign set that circuits are searched with.
        options: everything else about pruning; see ``Prune``.
        runtime: device, number format, batch size.
        scores: scores of an earlier ``prune`` on the same model.

    Raises:
        CompressError: a bad option, model, data set or folder, or a grid without a single possible point.
    """
    options, runtime, out = options or Prune(), runtime or Runtime(), Path(out)
    check_options(options, ood=ood_validation is not None, scores=scores is not None)
    model = open_single(model)
    calibration = open_calibration(data, model, labelled=needs_labels(options))
    measured = calibration if validation is None else given_dataset(validation)
    if measured is None:
        raise UsageError("there is no set to measure the points on", where="--validation", fix="pass --validation")
    if validation is None:
        log.warning("points are measured on the set that their heads were scored on; pass --validation")
    foreign = {name: given_dataset(given) for name, given in (ood or {}).items()}
    team = processes(runtime.torch_device())
    with contextlib.ExitStack() as stack:
        team.on_main(lambda: stack.enter_context(opened_run(out)))
        run = _Sweep(model, out, calibration, open_foreign(ood_validation, model), measured, foreign, runtime, team)
        result = run.result(grid, options, scores)
        team.on_main(lambda: _write(result, out))
    return result


@dataclass
class _Sweep:
    """What all points share."""

    model: Transformer
    out: Path
    calibration: Dataset | None
    searched_with: Dataset | None
    measured: Dataset
    foreign: Mapping[str, Dataset]
    runtime: Runtime
    team: Processes

    def result(self, grid: Grid, options: Prune, scores: str | Path | None) -> SweepResult:
        """All points, computed or remembered."""
        fingerprint = model_fingerprint(self.model)
        # Random scores are drawn for each member, so for the largest number of members.
        base = options.model_copy(update={"members": max(grid.members)})
        chooser = self._chooser(base, fingerprint, scores)
        identity = {
            "model": fingerprint,
            "scored_on": chooser.data,
            # Neither method nor data determine scores that were given: those of method random are drawn by a seed.
            "scores": None if scores is None else hash_file(scores_file(Path(scores))),
            "searched_with": None if self.searched_with is None else self.searched_with.fingerprint,
            "measured_on": self.measured.fingerprint,
            "foreign": {name: data.fingerprint for name, data in self.foreign.items()},
            "dtype": self.runtime.dtype,
        }
        wanted: list[tuple[SweepPoint, Prune | None]] = [(SweepPoint(name=SINGLE), None)]
        for name, chosen in grid.points(options):
            point = SweepPoint(name=name, keep=chosen.keep, members=chosen.members, branch_layer=chosen.numbered_branch)
            wanted.append((point, chosen))
        points = []
        for point, own in progress(wanted, "sweep", len(wanted), "point"):
            key = record_key(**identity, options=None if own is None else own.model_dump(mode="json"))
            points.append(self._point(point, own, chooser, key))
        if all(point.flops is None for point in points[1:]):
            raise UsageError(f"no point of the grid is possible ({points[1].reason})", where="--keep", fix="change it")
        return SweepResult(
            method=options.method,
            data=summary_of(self.measured),
            ood={name: summary_of(data) for name, data in self.foreign.items()},
            points=tuple(points),
        )

    def _chooser(self, options: Prune, fingerprint: str, scores: str | Path | None) -> MemberChooser:
        """Scores that were given, those of an earlier call, or new ones, which are saved."""
        path = self.out / SCORES
        if options.method == "circuit":
            return self._opened_chooser(options, fingerprint, scores, state=path)
        if scores is not None:
            return self._opened_chooser(options, fingerprint, scores)
        record = self.out / STATE_FOLDER / "scores.json"
        key = record_key(
            model=fingerprint,
            data=None if self.calibration is None else self.calibration.fingerprint,
            options=options.model_dump(mode="json", include={"method", "members", "seed"}),
            dtype=self.runtime.dtype,
        )
        if self.team.on_main(lambda: path.is_file() and read_record(record, key) is not None):
            return self._opened_chooser(options, fingerprint, path)
        chooser = self._opened_chooser(options, fingerprint, None)

        def save() -> None:
            chooser.save(path)
            write_record(record, Record(key=key))

        self.team.on_main(save)
        return chooser

    def _opened_chooser(
        self, options: Prune, fingerprint: str, scores: str | Path | None, state: Path | None = None
    ) -> MemberChooser:
        return open_chooser(
            self.model,
            self.calibration,
            self.searched_with,
            options,
            self.runtime,
            fingerprint=fingerprint,
            scores=scores,
            state=state,
        )

    def _point(self, point: SweepPoint, options: Prune | None, chooser: MemberChooser, key: str) -> SweepPoint:
        """A finished point: remembered under its key, or computed and written down."""
        path = self.out / STATE_FOLDER / f"{point.name}.json"
        known = self.team.on_main(lambda: read_record(path, key))
        if known is not None and known.point is not None:
            return known.point
        done = self._measured(point, options, chooser)
        self.team.on_main(lambda: write_record(path, Record(key=key, point=done)))
        return done

    def _measured(self, point: SweepPoint, options: Prune | None, chooser: MemberChooser) -> SweepPoint:
        if options is None:
            model = self.model
        else:
            try:
                chosen = chooser.choose(options)
            except UsageError as error:
                return point.model_copy(update={"reason": error.what})
            model = fuse_models(_members(self.model, chosen))
        try:
            result = self._evaluated(model)
        except ModelError as error:
            if options is None:
                raise
            return point.model_copy(update={"reason": error.what})
        names = [ACCURACY, "cls/nll", ECE, DISAGREEMENT, *(f"ood/{name}/auroc" for name in self.foreign)]
        return point.measured(result.models[0], names)

    def _evaluated(self, model: Transformer) -> EvaluationResult:
        options = Evaluate(latency=False, memory=False)
        return run_evaluation(
            {"fused": model}, data=self.measured, ood=self.foreign, options=options, runtime=self.runtime
        ).result


def _members(model: Transformer, chosen: MemberHeads) -> list[Transformer]:
    """The pruned copies; they share everything but their attentions."""
    return [prune_heads(model, head_numbers(model, slots)) for slots in chosen.slots]


def _write(result: SweepResult, out: Path) -> None:
    """The picture first: a folder with a result is complete."""
    # Matplotlib is imported only where there is something to draw.
    from compress.sweeping.picture import draw_pareto

    for suffix, content in draw_pareto(result).items():
        write_bytes(out / f"{PICTURE}.{suffix}", content)
    write_bytes(out / TABLE, f"{result.table()}\n".encode())
    write_bytes(out / RESULT, result.to_json().encode())
