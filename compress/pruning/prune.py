"""The ``prune`` stage: one model in, M differently pruned copies out."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.folder import check_target, new_folder
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, given_dataset, require_kind
from compress.data.batches import batches
from compress.data.labels import align_labels
from compress.data.reference import image_folders
from compress.distributed import processes
from compress.errors import ArtifactError, ModelError, UsageError
from compress.opening import open_model
from compress.placing import to_device
from compress.pruning.baselines import magnitude_samples, random_samples
from compress.pruning.branching import BranchCandidate, choose_branch
from compress.pruning.chooser import MemberChooser, ScoreChooser
from compress.pruning.circuit_chooser import CircuitChooser, searches_left
from compress.pruning.circuit_scores import CircuitScores, load_circuit_scores
from compress.pruning.members import Choice, write_members
from compress.pruning.options import Prune, check_options, needs_labels
from compress.pruning.result import PruneResult
from compress.pruning.scores import HeadScores, load_scores
from compress.pruning.selection import MemberHeads, check_counts
from compress.pruning.taylor import taylor_samples
from compress.runtime import Runtime
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs

log = logging.getLogger(__name__)
SCORES = "scores.safetensors"
SELF_CHECK_SAMPLES = 4


def prune(
    model: str | Path | Transformer,
    out: str | Path,
    *,
    data: str | Dataset | None = None,
    ood: str | Dataset | None = None,
    options: Prune | None = None,
    runtime: Runtime | None = None,
    scores: str | Path | None = None,
    overwrite: bool = False,
) -> PruneResult:
    """Prune attention heads of a single model into ``options.members`` copies.

    Args:
        model: see ``open_model``.
        out: folder to write: ``member-0`` …, ``scores.safetensors`` and a manifest that names them all.
        data: labelled calibration set; not needed for magnitude, random, or with ``scores``. For circuits by the
            objective ``ood`` it may be unlabelled.
        ood: foreign validation set for circuits; its labels are not used. Keep another one for the evaluation.
        options: see ``Prune``.
        runtime: device, number format and batch size of the scoring.
        scores: scores of an earlier run on the same model, to select again without a second pass. Circuits that they
            do not hold are searched, when ``data`` are given.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a bad option, model, data set or place; nothing is written, except that the layers a circuit
            search has done stay in a hidden file beside ``out``, from which the next call continues.

    Source: Hydra Ensembles, arXiv 2510.18358; importance as in ``taylor_samples``, circuits as in
    ``compress.pruning.circuit``.
    """
    options, runtime, out = options or Prune(), runtime or Runtime(), Path(out)
    check_options(options, ood=ood is not None, scores=scores is not None)
    team = processes(runtime.torch_device())
    team.on_main(lambda: check_target(out, overwrite=overwrite, inputs=(model,), outside=image_folders(data, ood)))
    model = open_single(model)
    check_counts([layer.attention.slots for layer in model.layers], options)
    dataset = open_calibration(data, model, labelled=needs_labels(options))
    foreign = open_foreign(ood, model)
    fingerprint = model_fingerprint(model)
    chooser = open_chooser(
        model, dataset, foreign, options, runtime, fingerprint=fingerprint, scores=scores, state=_search_state(out)
    )
    options = _with_seed_of_scores(options, chooser)
    choice = _choose(chooser, model, dataset, foreign, options, runtime, fingerprint)
    _warn_when_alike(choice.heads)
    names = [f"member-{member}" for member in range(options.members)]

    def write() -> PruneResult:
        with new_folder(out, kind="members", stage="prune", overwrite=overwrite, members=names) as partial:
            result = write_members(partial, out, model, choice, _check_inputs(model, dataset))
            chooser.save(partial / SCORES)
        chooser.finished()
        return result

    return team.on_main(write)


def open_single(model: str | Path | Transformer) -> Transformer:
    """A model that can be pruned; raises ``ModelError`` for a fused one, or one with budgets or routers."""
    opened = open_model(model)
    if opened.structure.members > 1:
        raise ModelError(
            "a fused model cannot be pruned",
            where=str(opened.config.backbone.architecture),
            fix="prune first, then fuse",
        )
    if opened.config.attached is not None:
        raise ModelError(
            f"a model with {opened.config.attached} cannot be pruned: they were trained for the heads that it has",
            where=str(opened.config.backbone.architecture),
            fix="prune and fuse first, then compress budget or route",
        )
    return opened


def open_chooser(
    model: Transformer,
    dataset: Dataset | None,
    foreign: Dataset | None,
    options: Prune,
    runtime: Runtime,
    *,
    fingerprint: str,
    scores: str | Path | None = None,
    state: Path | None = None,
) -> MemberChooser:
    """What chooses heads by ``options.method``; scores the heads, unless ``scores`` are given or a search will do it.

    Args:
        model: the single model, of that ``fingerprint``.
        dataset: the calibration set.
        foreign: the foreign validation set.
        options: see ``Prune``.
        runtime: device, number format, batch size.
        fingerprint: of the model.
        scores: file or folder of saved scores.
        state: file for the state of circuit searches.

    Raises:
        UsageError: the method needs data and there are none.
        ArtifactError: the scores are of another model, method or data.
    """
    if model.untrained_classifier and options.method in ("taylor", "circuit"):
        log.warning("the classifier is untrained, so importance measures noise; tune it first")
    heads = [layer.attention.slots for layer in model.layers]
    if options.method == "circuit":
        known = _known_circuits(dataset, foreign, runtime, fingerprint, scores, heads)
        if state is not None and dataset is not None:
            team = processes(runtime.torch_device())
            known.searches.update(team.on_main(lambda: searches_left(state, known, heads=heads)))
        return CircuitChooser(model, dataset, foreign, runtime, known, state)
    if scores is not None:
        return ScoreChooser(load_scores(Path(scores), model=fingerprint, method=options.method, heads=heads))
    return ScoreChooser(score_heads(model, dataset, options, runtime, fingerprint))


def score_heads(
    model: Transformer, dataset: Dataset | None, options: Prune, runtime: Runtime, fingerprint: str
) -> HeadScores:
    """The importance of every head by taylor, magnitude or random.

    Raises:
        UsageError: the method needs data and there are none.
    """
    if options.method == "magnitude":
        return HeadScores(magnitude_samples(model), "magnitude", fingerprint)
    if options.method == "random":
        samples = random_samples(model, options.members, options.seed)
        return HeadScores(samples, "random", fingerprint, seed=options.seed)
    if dataset is None:
        raise UsageError("taylor importance needs a labelled calibration set", where="--data", fix="pass --data")
    return HeadScores(taylor_samples(model, dataset, runtime), "taylor", fingerprint, dataset.fingerprint)


def open_calibration(data: str | Dataset | None, model: Transformer, *, labelled: bool) -> Dataset | None:
    """The calibration set, its classes numbered as the model's; unlabelled only where that is enough."""
    if data is None:
        return None
    dataset = given_dataset(data)
    require_kind(dataset, model.config.preprocessing.kind)
    return align_labels(dataset, model.labels) if labelled or dataset.labels is not None else dataset


def open_foreign(ood: str | Dataset | None, model: Transformer) -> Dataset | None:
    """The foreign validation set."""
    if ood is None:
        return None
    dataset = given_dataset(ood)
    require_kind(dataset, model.config.preprocessing.kind)
    return dataset


def _known_circuits(
    dataset: Dataset | None,
    foreign: Dataset | None,
    runtime: Runtime,
    fingerprint: str,
    scores: str | Path | None,
    heads: list[int],
) -> CircuitScores:
    """The circuits of saved scores, or none yet."""
    given = None if scores is None else load_circuit_scores(Path(scores), model=fingerprint, heads=heads)
    if dataset is None:
        if given is None:
            raise UsageError("circuits need a calibration set", where="--data", fix="pass --data, or --scores")
        return given
    fingerprints = dataset.fingerprint, None if foreign is None else foreign.fingerprint
    wanted = CircuitScores(fingerprint, *fingerprints, runtime.dtype)
    if given is not None and not given.same_data(wanted):
        raise ArtifactError(
            "the scores were made on other data, or in another number format",
            where=str(scores),
            fix="give the same --data, --ood and --dtype, or leave --scores out",
        )
    return wanted if given is None else given


def _with_seed_of_scores(options: Prune, chooser: MemberChooser) -> Prune:
    """The options with the seed that saved random scores were drawn with: it is the one behind the heads."""
    drawn = chooser.scores.seed if isinstance(chooser, ScoreChooser) else None
    if drawn is None or drawn == options.seed:
        return options
    log.warning("the random scores were drawn with seed %d, which takes the place of seed %d", drawn, options.seed)
    return options.model_copy(update={"seed": drawn})


def _search_state(out: Path) -> Path:
    final = Path(os.path.realpath(out))
    return final.with_name(f".{final.name}.search.safetensors")


def _choose(
    chooser: MemberChooser,
    model: Transformer,
    dataset: Dataset | None,
    foreign: Dataset | None,
    options: Prune,
    runtime: Runtime,
    fingerprint: str,
) -> Choice:
    """The branch layer if it is to be found, the heads, and what they are worth."""
    candidates: tuple[BranchCandidate, ...] = ()
    if options.branch_layer == "auto":
        if dataset is None:
            raise UsageError(
                "members are compared on a calibration set to find the branch layer",
                where="--branch-layer",
                fix="pass --data, or name a layer",
            )
        options, candidates = choose_branch(chooser, model, dataset, options, runtime)
    heads = chooser.choose(options)
    circuits = chooser.measure(heads, options)
    ood = None if foreign is None else foreign.fingerprint
    return Choice(heads, options, fingerprint, chooser.data, ood, candidates, circuits)


def _check_inputs(model: Transformer, dataset: Dataset | None) -> Inputs:
    """A few inputs for the self-check: real ones when there are any."""
    device = next(model.parameters()).device
    if dataset is None:
        return model.stem.probe()
    few = range(min(SELF_CHECK_SAMPLES, len(dataset)))
    batch = next(iter(batches(dataset, preprocessor(model), batch_size=len(few), indices=few)))
    return to_device(batch.inputs, device, next(model.parameters()).dtype)


def _warn_when_alike(chosen: MemberHeads) -> None:
    largest = max((value for m, row in enumerate(chosen.overlap) for value in row[:m]), default=0.0)
    if largest > 0.8:
        log.warning("members overlap by up to %.2f, so they will hardly differ; pass --max-overlap 0.5", largest)
