"""The ``calibrate`` stage: a model in, the same weights with a temperature and a threshold of abstention out."""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from compress.artifact.folder import check_target
from compress.artifact.provenance import Provenance
from compress.artifact.store import write_model
from compress.artifact.tensors import tensor_entries
from compress.calibration.options import Calibrate
from compress.calibration.threshold import answered, coverage_threshold, risk_threshold
from compress.data.base import Dataset, given_dataset, require_kind
from compress.data.labels import align_labels
from compress.data.reference import image_folders
from compress.inference.forward import all_answers
from compress.inference.temperature import fit_temperature
from compress.opening import open_model
from compress.parent import parent_of
from compress.runtime import Runtime
from compress.transformer.combine import tempered
from compress.transformer.config import Abstention
from compress.transformer.model import Transformer
from compress.transformer.uncertainty import PredictiveDistribution, predictive_distribution


@dataclass(frozen=True)
class CalibrateResult:
    """What ``calibrate`` wrote.

    Attributes:
        folder: the artifact.
        samples: of the calibration set.
        temperature: of the artifact.
        nll_before, nll_after: negative log-likelihood of the calibration set, nats.
        accuracy: on the calibration set, all of it answered.
        abstention: the score, the threshold and its target; None when no target was given.
        coverage, risk: on the calibration set with the threshold; None without.
    """

    folder: Path
    samples: int
    temperature: float
    nll_before: float
    nll_after: float
    accuracy: float
    abstention: Abstention | None
    coverage: float | None
    risk: float | None

    def table(self) -> str:
        """A short text for the terminal."""
        lines = [f"temperature {self.temperature:.4g}: NLL {self.nll_before:.4f} before, {self.nll_after:.4f} after"]
        if self.abstention is not None:
            wrong = f"{self.risk:.1%} of these wrong ({1 - self.accuracy:.1%} when all are answered)"
            lines.append(f"{self.abstention.rule}: answers {self.coverage:.1%} of the samples, {wrong}")
        return "\n".join([*lines, f"on {self.samples:,} samples; written to {self.folder}"])

    def to_plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        abstention = None if self.abstention is None else self.abstention.model_dump(mode="json")
        return {**dataclasses.asdict(self), "folder": str(self.folder), "abstention": abstention}


def calibrate(
    model: str | Path | Transformer,
    out: str | Path,
    *,
    data: str | Dataset,
    options: Calibrate | None = None,
    runtime: Runtime | None = None,
    overwrite: bool = False,
) -> CalibrateResult:
    """Fit a temperature and, for a target coverage or risk, a threshold of abstention; weights stay as they are.

    Args:
        model: see ``open_model``; single or fused. Its own temperature is multiplied by the one that is fitted.
        out: folder to write.
        data: labelled set that the model was not trained on.
        options: see ``Calibrate``. The threshold is fitted after the temperature, to the same samples; a single number
            fitted to hundreds of samples does not spoil them for the other.
        runtime: device, number format, batch size. Thresholds hold for predictions in the same number format.
        overwrite: replace an artifact that is there.

    Raises:
        CompressError: a model, data set, target or place that cannot be used; nothing is written.

    Source: see ``fit_temperature`` and ``risk_threshold``.
    """
    options, runtime, out = options or Calibrate(), runtime or Runtime(), Path(out)
    check_target(out, overwrite=overwrite, inputs=(model,), outside=image_folders(data))
    opened = open_model(model)
    dataset = given_dataset(data)
    require_kind(dataset, opened.config.preprocessing.kind)
    aligned = align_labels(dataset, opened.labels)
    running = _without_temperature(opened).to(runtime.torch_device(), runtime.torch_dtype()).eval()
    logits, labels = all_answers(running, running, aligned, runtime, "calibrate")
    # Divided where and as the model does it: another device or number format rounds to other scores.
    logits, own = logits.to(runtime.torch_device()), opened.config.temperature
    factor = fit_temperature(tempered(logits, own), labels) if options.temperature else 1.0
    before, after = (predictive_distribution(tempered(logits, chosen)) for chosen in (own, own * factor))
    correct = after.predicted.cpu() == labels
    abstention = _abstention(after, correct, options)
    coverage, risk = None, None
    if abstention is not None:
        coverage, risk = answered(after.score(abstention.score).cpu(), correct, abstention.threshold)
    result = CalibrateResult(
        folder=out,
        samples=len(labels),
        temperature=own * factor,
        nll_before=_nll(before, labels),
        nll_after=_nll(after, labels),
        accuracy=float(correct.to(torch.float64).mean()),
        abstention=abstention,
        coverage=coverage,
        risk=risk,
    )
    _write(opened, model, result, options, dataset, overwrite=overwrite)
    return result


def _without_temperature(model: Transformer) -> Transformer:
    """A copy that gives its logits as they are before they are divided."""
    copied = copy.deepcopy(model)
    copied.config = copied.config.model_copy(update={"temperature": 1.0})
    return copied


def _abstention(found: PredictiveDistribution, correct: Tensor, options: Calibrate) -> Abstention | None:
    if options.target_coverage is None and options.target_risk is None:
        return None
    scores = found.score(options.score).cpu()
    if options.target_coverage is not None:
        threshold = coverage_threshold(scores, options.target_coverage)
        return Abstention(score=options.score, threshold=threshold, target="coverage", value=options.target_coverage)
    risk = options.target_risk or 0.0
    return Abstention(score=options.score, threshold=risk_threshold(scores, correct, risk), target="risk", value=risk)


def _nll(found: PredictiveDistribution, labels: Tensor) -> float:
    return float(-found.log_mean.cpu().gather(1, labels[:, None]).mean())


def _write(
    opened: Transformer,
    given: str | Path | Transformer,
    result: CalibrateResult,
    options: Calibrate,
    dataset: Dataset,
    *,
    overwrite: bool,
) -> None:
    parent = parent_of(given, opened)
    measured = ("samples", "temperature", "nll_before", "nll_after", "accuracy", "coverage", "risk")
    provenance = Provenance(
        stage="calibrate",
        options=options.model_dump(mode="json"),
        parents=(parent.digest,),
        data_fingerprint=dataset.fingerprint,
        notes={**parent.notes, **{name: getattr(result, name) for name in measured}},
    )
    # A threshold that was fitted with another temperature means nothing any more.
    config = opened.config.model_copy(update={"temperature": result.temperature, "abstention": result.abstention})
    entries, ties = tensor_entries(opened.state_dict())
    write_model(config, entries, result.folder, provenance, files=opened.files, ties=ties, overwrite=overwrite)
