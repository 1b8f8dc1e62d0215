"""Temperature scaling: the cheapest calibration there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from compress.data.labels import align_labels
from compress.errors import ModelError, UsageError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.subject import Subject
from compress.inference.forward import all_answers
from compress.inference.temperature import fit_temperature
from compress.transformer.ensemble import Ensemble
from compress.transformer.model import Transformer


def build(name: str, models: Sequence[str | Path | nn.Module], opening: Opening) -> Subject:
    """The model with its members' logits divided by the temperature that fits the calibration set best.

    See ``fit_temperature``. A temperature that the model has already is multiplied by the new one.

    Raises:
        UsageError: there is no calibration set.
        ModelError: the model is no transformer or ensemble of them.
    """
    if opening.calibration is None:
        raise UsageError("temperature scaling needs labelled data to fit on", where=name, fix="pass --calibration DATA")
    subject = opening.subject(name, models[0])
    if not isinstance(subject.module, Transformer | Ensemble):
        raise ModelError("cannot be given a temperature", where=name, fix="name a model, not a baseline")
    first = subject.models[0]
    dataset = align_labels(opening.calibration, first.labels)
    logits, labels = all_answers(subject.module, first, dataset, opening.runtime, f"{name}: calibration")
    temperature = fit_temperature(logits, labels)
    scaled = [_scaled(model, temperature) for model in subject.models]
    subject.module = scaled[0] if isinstance(subject.module, Transformer) else Ensemble(scaled)
    subject.settings = {"temperature": temperature}
    return subject


def _scaled(model: Transformer, factor: float) -> Transformer:
    """The same weights with another temperature."""
    temperature = model.config.temperature * factor
    return model.changed(model.config.model_copy(update={"temperature": temperature, "abstention": None}))
