"""Members cut along circuits: which searches they need, each run once, and continued after an interruption."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from compress.artifact.durable import write_failure
from compress.data.base import Dataset
from compress.distributed import processes
from compress.errors import ArtifactError, UsageError
from compress.progress import progress_bar
from compress.pruning.circuit import CircuitSearcher
from compress.pruning.circuit_losses import CircuitLosses, measure_circuits
from compress.pruning.circuit_scores import (
    CircuitScores,
    Search,
    SearchScores,
    load_circuit_scores,
    save_circuit_scores,
)
from compress.pruning.options import Objective, Prune
from compress.pruning.scores import normalised
from compress.pruning.selection import MemberHeads, check_branch, differing_members, heads_to_keep, trunk_keep
from compress.runtime import Runtime
from compress.transformer.model import Transformer

log = logging.getLogger(__name__)


@dataclass
class CircuitChooser:
    """Chooses heads by searching circuits; see ``MemberChooser``.

    The trunk is searched once, over the whole data and by both objectives where both can be measured, unless it keeps
    all of its heads: then it takes no part. The members' searches start at the branch layer, with the trunk's circuit
    masked below it.

    Attributes:
        model: the single model.
        calibration: the calibration set; None when there are only ``scores`` to choose from.
        foreign: the foreign validation set.
        runtime: device, number format, batch size.
        scores: the searches known so far, complete or not; new ones are added.
        state: file that holds the searches while they run, for a run that continues after an interruption.
    """

    model: Transformer
    calibration: Dataset | None
    foreign: Dataset | None
    runtime: Runtime
    scores: CircuitScores
    state: Path | None = None
    chooses_freely: bool = False
    _used: list[Search] = field(default_factory=list)

    @property
    def data(self) -> str | None:
        """See ``MemberChooser``."""
        return self.scores.data

    def choose(self, options: Prune) -> MemberHeads:
        """See ``MemberChooser``; searches what is not known yet.

        Raises:
            UsageError: the saved scores hold no such search and there are no data; or what ``differing_members`` and
                ``check_branch`` refuse.
        """
        branch = options.numbered_branch
        check_branch(branch, len(self.model.layers), options.members)
        trunk = self._trunk_search(options, branch)
        unknown: tuple[tuple[int, ...], ...] = ((),) * branch
        planned = [*([] if trunk is None else [trunk]), *self._member_searches(options, unknown)]
        with self._searching(planned, branch) as find:
            below = None if trunk is None else find(trunk)
            masked = unknown if below is None else below.circuit
            members = [find(search) for search in self._member_searches(options, masked)]
        self._used = [found.search for found in (*([] if below is None else [below]), *members)]
        heads = self._heads[:branch]
        whole = [set(range(count)) for count in heads]
        ignored = [torch.zeros(count) for count in heads]
        low = ignored if below is None else normalised(below.importance)
        return differing_members(
            whole if below is None else [set(own) for own in below.circuit],
            [[set(own) for own in found.circuit] for found in members],
            [low + normalised(found.importance) for found in members],
            options.max_overlap,
        )

    def measure(self, chosen: MemberHeads, options: Prune) -> tuple[CircuitLosses, ...]:
        """See ``MemberChooser``; nothing when there are no data."""
        if self.calibration is None:
            return ()
        branch = options.numbered_branch
        searched = 0 if self._trunk_search(options, branch) is not None else branch
        objectives = member_objectives(options, foreign=self._knows_foreign)
        return measure_circuits(
            self.model, chosen, objectives, self.calibration, self.foreign, self.runtime, first_layer=searched
        )

    def save(self, path: Path) -> None:
        """See ``MemberChooser``."""
        used = {search: self.scores.searches[search] for search in self._used}
        save_circuit_scores(replace(self.scores, searches=used), path)

    def finished(self) -> None:
        """See ``MemberChooser``."""
        if self.state is not None:
            with contextlib.suppress(OSError):
                self.state.unlink()

    @property
    def _heads(self) -> list[int]:
        return [layer.attention.slots for layer in self.model.layers]

    @property
    def _knows_foreign(self) -> bool:
        return self.foreign is not None or self.scores.ood is not None

    def _trunk_search(self, options: Prune, branch: int) -> Search | None:
        """The search of the layers below the branch layer; None when they keep all heads."""
        heads = self._heads[:branch]
        keep = tuple(heads_to_keep(trunk_keep(options), count) for count in heads)
        if list(keep) == heads:
            return None
        return Search(objective=self._trunk_objective(), start=0, keep=keep, masked=())

    def _trunk_objective(self) -> Objective:
        if not self._knows_foreign:
            return "task"
        if self.calibration is not None:
            return "ood" if self.calibration.labels is None else "avg"
        known = [losses.task for found in self.scores.searches.values() for losses in found.losses]
        return "ood" if any(loss is None for loss in known) else "avg"

    def _member_searches(self, options: Prune, masked: tuple[tuple[int, ...], ...]) -> list[Search]:
        """One search per member, above what is masked; on bootstraps when no objective tells the members apart."""
        objectives = member_objectives(options, foreign=self._knows_foreign)
        apart = len(set(objectives)) == len(objectives)
        keep = tuple(heads_to_keep(options.keep, count) for count in self._heads[len(masked) :])
        return [
            Search(
                objective=objective,
                start=len(masked),
                keep=keep,
                masked=masked,
                bootstrap=None if apart else (options.seed, member),
            )
            for member, objective in enumerate(objectives)
        ]

    @contextlib.contextmanager
    def _searching(self, planned: list[Search], branch: int) -> Iterator[Callable[[Search], SearchScores]]:
        """Gives a function from a search to its complete scores; a bar counts the passes that are left."""
        if self.calibration is None:
            yield self._known
            return
        searcher = CircuitSearcher(self.model, self.calibration, self.foreign, self.runtime)
        label = f"search circuits from layer {branch}" if branch else "search circuits"
        total = sum(searcher.layer_passes(search) for search in planned)
        with progress_bar(label, total=total, unit="layer pass") as bar:
            yield lambda search: self._found(search, searcher, bar)

    def _known(self, search: Search) -> SearchScores:
        """A complete search of the saved scores."""
        found = self.scores.searches.get(search)
        if found is None or not found.complete:
            held = ", ".join(dict.fromkeys(map(_in_words, self.scores.searches)))
            raise UsageError(
                f"the saved scores hold no search by {_in_words(search)} above these heads, but {held or 'none'}",
                where="--scores",
                fix="pass --data too, so that it can be searched",
            )
        return found

    def _found(self, search: Search, searcher: CircuitSearcher, bar: tqdm[Any]) -> SearchScores:
        """A complete search, run from where it stands."""
        found = self.scores.searches.get(search, SearchScores(search))
        # What is done already is no work that is left, so the bar's estimate stays true.
        done = searcher.layer_passes(search) - searcher.layer_passes(search, len(found.losses))
        bar.total = (bar.total or 0) - done
        bar.refresh()
        return searcher.run(found, advanced=bar.update, record=self._record)

    def _record(self, found: SearchScores) -> None:
        self.scores.searches[found.search] = found
        state = self.state
        if state is None:
            return

        def write() -> None:
            try:
                state.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise write_failure(error, state.parent) from error
            save_circuit_scores(self.scores, state)

        processes(self.runtime.torch_device()).on_main(write)


def member_objectives(options: Prune, *, foreign: bool) -> list[Objective]:
    """What each member's circuit is searched by: the option, or one objective each for 3 members with ``foreign``."""
    if options.objective is not None:
        return [options.objective] * options.members
    if options.members == 3 and foreign:
        return ["task", "ood", "avg"]
    return ["task"] * options.members


def _in_words(search: Search) -> str:
    return f"{search.objective} with {search.keep[-1]} heads from layer {search.start}"


def searches_left(state: Path, scores: CircuitScores, *, heads: list[int]) -> dict[Search, SearchScores]:
    """What an interrupted run on the same model and data as ``scores`` has left in the file ``state``, if anything."""
    if not state.is_file():
        return {}
    try:
        left = load_circuit_scores(state, model=scores.model, heads=heads)
    except ArtifactError as error:
        log.info("the state of an interrupted search is not used (%s)", error.what)
        return {}
    if not left.same_data(scores):
        log.info("the state of an interrupted search is not used (it is of other data)")
        return {}
    log.info(
        "continuing an interrupted search, %d layers are done", sum(len(own.losses) for own in left.searches.values())
    )
    return left.searches
