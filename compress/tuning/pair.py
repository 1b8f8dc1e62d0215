"""``tune`` with captions: both towers of a model, to a zero-shot classifier and the pair in its family's own format."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from compress.artifact.durable import write_bytes
from compress.artifact.store import save_model
from compress.artifact.tensors import tensor_entries, write_tensors
from compress.backbones.base import TowerPair
from compress.backbones.drawing import drawn_from
from compress.backbones.registry import PAIRS
from compress.backbones.source import RANDOM, ModelSource
from compress.data.base import require_kind
from compress.data.labels import align_labels
from compress.errors import DataError, UsageError
from compress.opening import artifact_folder, parse_source
from compress.transformer.model import Transformer
from compress.tuning.contrastive import ContrastiveLearner
from compress.tuning.engine import machine
from compress.tuning.job import Job, Tuned
from compress.tuning.log import LOG_NAME, last_loss
from compress.tuning.loop import Loop
from compress.tuning.options import Tune
from compress.tuning.seeds import derived_seed
from compress.tuning.state import held_state, identity
from compress.tuning.validation import Validation

NOT_FOR_CAPTIONS = (
    "freeze",
    "keep_trunk_outputs",
    "layer_decay",
    "label_smoothing",
    "diversity",
    "head_dropout",
    "head_dropout_keep",
    "head_dropout_from",
)


def tune_pair(job: Job, reference: str | Path | ModelSource | Transformer) -> Tuned:
    """Train both towers on captions made of the classes' names, and write what came of it.

    The output is the artifact of a zero-shot classifier, which every stage can start from. In it lies a folder named
    after the family with both towers as the family's own library saves them, which can be opened with other classes.

    Raises:
        UsageError: a model without two towers, options that mean nothing here, or several processes.
        CompressError: as ``tune``.
    """
    _check(job)
    source = _source(job, reference)
    names = source.labels or job.dataset.class_names
    if names is None:
        raise DataError("the data are unlabelled", where=job.dataset.reference, fix="use labelled data")
    require_kind(job.dataset, "image")
    pair = _opened(source, job.options)
    pair.recompute(job.options.gradient_checkpointing)
    described = identity(source=source.model_dump(mode="json"), labels=names)
    with held_state(job.out, job.identity(described), job.team) as state:
        tuned = _trained(job, pair, source, tuple(names), state)
        classifier = pair.classifier(names, source.templates)
        provenance = job.provenance(job.options, (described,), tuned)

        def further(partial: Path) -> None:
            _write_pair(pair, partial / source.adapter)

        save_model(classifier, job.out, provenance, overwrite=job.overwrite, further=further)
        with contextlib.suppress(OSError):
            shutil.copyfile(state / LOG_NAME, job.out / LOG_NAME)
    return tuned


def _check(job: Job) -> None:
    if job.team.count > 1:
        raise UsageError(
            "captions are learned in one process, whose batch holds all wrong answers",
            where="--objective",
            fix="start it without a launcher",
        )
    if job.teacher is not None:
        raise UsageError("captions are learned without a teacher", where="--teacher", fix="leave it out")
    for name in NOT_FOR_CAPTIONS:
        if getattr(job.options, name) != Tune.model_fields[name].default:
            raise UsageError("means nothing for captions", where=f"--{name.replace('_', '-')}", fix="leave it out")


def _source(job: Job, reference: str | Path | ModelSource | Transformer) -> ModelSource:
    """The model by family and name, from random weights if asked for."""
    fix = f"give one of the families {', '.join(PAIRS)}"
    if isinstance(reference, Transformer) or (
        not isinstance(reference, ModelSource) and artifact_folder(reference) is not None
    ):
        raise UsageError("an artifact has one tower, captions need two", where="--objective", fix=fix)
    source = reference if isinstance(reference, ModelSource) else parse_source(str(reference))
    if source.adapter not in PAIRS:
        raise UsageError(f"{source.adapter} models have one tower, captions need two", where="--objective", fix=fix)
    return source.model_copy(update={"weights": RANDOM}) if job.options.from_scratch else source


def _opened(source: ModelSource, options: Tune) -> TowerPair:
    """Both towers; from scratch, their weights come from the seed of the training."""
    if not options.from_scratch:
        return PAIRS[source.adapter](source)
    with drawn_from(derived_seed(options.seed, "weights")):
        return PAIRS[source.adapter](source)


def _trained(job: Job, pair: TowerPair, source: ModelSource, names: tuple[str, ...], state: Path) -> Tuned:
    """Train the pair in place; it ends on the CPU, in evaluation mode."""
    validation = None
    if job.validation is not None and job.metric is not None:
        validation = Validation(align_labels(job.validation, names), job.ood, job.metric)
    with machine(job.runtime) as place:
        learner = ContrastiveLearner(
            pair.to(place.device), job.options, place.device, class_names=names, templates=source.templates
        )
        dataset = align_labels(job.dataset, names)
        loop = Loop(learner, dataset, validation, job.options, job.runtime, place, state)
        progress = loop.train("tune", job.tensorboard)
    pair.to("cpu").eval()
    metric = None if job.metric is None else job.metric.name
    loss = last_loss(state / LOG_NAME)
    return Tuned("model", progress.step, metric, progress.first, progress.best, progress.best_step, loss)


def _write_pair(pair: TowerPair, folder: Path) -> None:
    saved = pair.saved()
    (config, content), (weights, tensors) = saved.config, saved.weights
    folder.mkdir()
    write_bytes(folder / config, content)
    entries, ties = tensor_entries(tensors)
    write_tensors(folder / weights, entries, ties=ties)
