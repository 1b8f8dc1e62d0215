"""The ``prune`` stage: one model in, M differently pruned copies out."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compress.artifact.durable import write_bytes
from compress.artifact.fingerprint import model_fingerprint
from compress.artifact.folder import check_target, new_folder
from compress.artifact.provenance import Provenance
from compress.artifact.store import PROVENANCE, json_bytes, save_model
from compress.backbones.registry import preprocessor
from compress.data.base import Dataset, open_dataset, require_kind
from compress.data.batches import batches
from compress.data.labels import align_labels
from compress.distributed import processes
from compress.errors import ModelError, UsageError
from compress.opening import open_model
from compress.placing import to_device
from compress.pruning.baselines import magnitude_samples, random_samples
from compress.pruning.options import Prune
from compress.pruning.scores import HeadScores, load_scores, save_scores
from compress.pruning.selection import MemberHeads, select
from compress.pruning.self_check import check_pruned
from compress.pruning.taylor import taylor_samples
from compress.runtime import Runtime
from compress.transformer.cost import count_parameters
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.surgery import prune_heads

log = logging.getLogger(__name__)
SCORES = "scores.safetensors"
SELF_CHECK_SAMPLES = 4


@dataclass(frozen=True)
class PruneResult:
    """What ``prune`` wrote.

    Attributes:
        folder: the set of members.
        kept_heads: ``kept_heads[member][layer]``, numbers in the original model.
        overlap: pairwise Jaccard overlap from the branch layer on.
        parameters: of every member.
        original_parameters: of the model that was pruned.
        largest_difference: the worst of the self-checks, relative to the largest logit.
    """

    folder: Path
    kept_heads: tuple[tuple[tuple[int, ...], ...], ...]
    overlap: tuple[tuple[float, ...], ...]
    parameters: tuple[int, ...]
    original_parameters: int
    largest_difference: float

    def table(self) -> str:
        """A short text for the terminal."""
        kept = 1 - sum(self.parameters) / len(self.parameters) / self.original_parameters
        heads = [" ".join(str(len(heads)) for heads in member) for member in self.kept_heads]
        lines = [f"{len(self.kept_heads)} members in {self.folder}, each with {kept:.1%} fewer parameters"]
        lines += [f"  member-{number}   heads kept per layer  {counts}" for number, counts in enumerate(heads)]
        if len(self.overlap) > 1:
            largest = max(value for member, row in enumerate(self.overlap) for value in row[:member])
            lines.append(f"  largest overlap of two members (Jaccard)  {largest:.2f}")
        lines.append(f"  self-check against the masked original: largest difference {self.largest_difference:.0e}")
        return "\n".join(lines)

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**dataclasses.asdict(self), "folder": str(self.folder)}


def prune(
    model: str | Path | Transformer,
    out: str | Path,
    *,
    data: str | Dataset | None = None,
    options: Prune | None = None,
    runtime: Runtime | None = None,
    scores: str | Path | None = None,
    overwrite: bool = False,
) -> PruneResult:
    """Prune attention heads of a single model into ``options.members`` copies.

    Args:
        model: see ``open_model``.
        out: folder to write: ``member-0`` …, ``scores.safetensors`` and a manifest that names them all.
        data: labelled calibration set; not needed for magnitude, random, or with ``scores``.
        options: see ``Prune``.
        runtime: device, number format and batch size of the scoring.
        scores: scores of an earlier run on the same model, to select again without a second pass.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a bad option, model, data set or place; nothing is written.

    Source: Hydra Ensembles, arXiv 2510.18358; importance as in ``taylor_samples``.
    """
    options, runtime, out = options or Prune(), runtime or Runtime(), Path(out)
    team = processes(runtime.torch_device())
    team.on_main(lambda: check_target(out, overwrite=overwrite))
    model = open_model(model)
    if model.structure.members > 1:
        raise ModelError(
            "a fused model cannot be pruned",
            where=str(model.config.backbone.architecture),
            fix="prune first, then fuse",
        )
    dataset = _calibration_set(data, model)
    fingerprint = model_fingerprint(model)
    if scores is not None:
        heads = [layer.attention.slots for layer in model.layers]
        found = load_scores(Path(scores), model=fingerprint, method=options.method, heads=heads)
    else:
        found = score_heads(model, dataset, options, runtime, fingerprint)
    chosen = select(found, options)
    _warn_when_alike(chosen, options)
    names = [f"member-{member}" for member in range(options.members)]

    def write() -> PruneResult:
        with new_folder(out, kind="members", stage="prune", overwrite=overwrite, members=names) as partial:
            inputs = _check_inputs(model, dataset)
            result = _write_members(partial, out, model, chosen, options, fingerprint, found.data, inputs)
            save_scores(found, partial / SCORES)
        return result

    return team.on_main(write)


def score_heads(
    model: Transformer, dataset: Dataset | None, options: Prune, runtime: Runtime, fingerprint: str
) -> HeadScores:
    """The importance of every head by ``options.method``.

    Raises:
        UsageError: the method needs data and there are none.
    """
    if options.method == "magnitude":
        return HeadScores(magnitude_samples(model), "magnitude", fingerprint)
    if options.method == "random":
        return HeadScores(random_samples(model, options.members, options.seed), "random", fingerprint)
    if dataset is None:
        raise UsageError("taylor importance needs a labelled calibration set", where="--data", fix="pass --data")
    return HeadScores(taylor_samples(model, dataset, runtime), "taylor", fingerprint, dataset.fingerprint)


def _calibration_set(data: str | Dataset | None, model: Transformer) -> Dataset | None:
    if data is None:
        return None
    dataset = open_dataset(data) if isinstance(data, str) else data
    require_kind(dataset, model.config.preprocessing.kind)
    return align_labels(dataset, model.labels)


def _check_inputs(model: Transformer, dataset: Dataset | None) -> Inputs:
    """A few inputs for the self-check: real ones when there are any."""
    device = next(model.parameters()).device
    if dataset is None:
        return model.stem.example(2)
    few = range(min(SELF_CHECK_SAMPLES, len(dataset)))
    batch = next(iter(batches(dataset, preprocessor(model), batch_size=len(few), indices=few)))
    return to_device(batch.inputs, device, next(model.parameters()).dtype)


def _warn_when_alike(chosen: MemberHeads, options: Prune) -> None:
    largest = max((value for m, row in enumerate(chosen.overlap) for value in row[:m]), default=0.0)
    if options.members > 1 and largest > 0.8:
        log.warning("members overlap by up to %.2f, so they will hardly differ; pass --max-overlap 0.5", largest)


def _write_members(
    partial: Path,
    out: Path,
    model: Transformer,
    chosen: MemberHeads,
    options: Prune,
    fingerprint: str,
    data_fingerprint: str | None,
    inputs: Inputs,
) -> PruneResult:
    """Make, check and write one copy after the other; one is in memory at a time, and it shares all but its attentions."""
    present = [layer.attention.kept_heads[0] for layer in model.layers]
    kept_heads, parameters, differences = [], [], []
    for member, slots in enumerate(chosen.slots):
        name = f"member-{member}"
        heads = tuple(tuple(present[layer][slot] for slot in own) for layer, own in enumerate(slots))
        pruned = prune_heads(model, heads)
        differences.append(check_pruned(model, pruned, inputs, name))
        kept_heads.append(heads)
        parameters.append(count_parameters(pruned))
        provenance = Provenance(
            stage="prune",
            options={**options.model_dump(mode="json"), "member": member},
            parents=(fingerprint,),
            data_fingerprint=data_fingerprint,
            notes={"importance_kept": round(chosen.importance_kept[member], 6)},
        )
        save_model(pruned, partial / name, provenance)
    set_provenance = Provenance(
        stage="prune",
        options=options.model_dump(mode="json"),
        parents=(fingerprint,),
        data_fingerprint=data_fingerprint,
        notes={
            "overlap": [[round(value, 6) for value in row] for row in chosen.overlap],
            "importance_lost_to_overlap": round(chosen.importance_lost_to_overlap, 6),
        },
    )
    write_bytes(partial / PROVENANCE, json_bytes(set_provenance.model_dump_json()))
    return PruneResult(
        out, tuple(kept_heads), chosen.overlap, tuple(parameters), count_parameters(model), max(differences)
    )
