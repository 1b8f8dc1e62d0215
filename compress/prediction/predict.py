"""``predict``: a model's answers to single inputs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import ConfigDict, Field
from torch import nn

from compress.errors import ModelError
from compress.inference.forward import Answers, answers
from compress.opening import open_model
from compress.options import Options
from compress.prediction.inputs import Given, read_inputs
from compress.runtime import Runtime
from compress.transformer.budgets import at_budget
from compress.transformer.config import Abstention
from compress.transformer.ensemble import Ensemble
from compress.transformer.model import Transformer
from compress.transformer.uncertainty import predictive_distribution

log = logging.getLogger(__name__)


class Prediction(Options):
    """The answer to one input."""

    input: str = Field(description="As the user named it: a path, a text, a table and its row.")
    label: str = Field(description="Name of the most probable class.")
    probability: float = Field(description="Of that class; the mean over the members.")
    entropy: float = Field(description="Of the mean probabilities, nats; 0 is certain.")
    mutual_information: float | None = Field(
        description="How much the members disagree, nats; null for a single model, which cannot tell."
    )
    abstain: bool | None = Field(
        description="Whether a person should decide: the artifact's threshold is exceeded; null without one."
    )


class PredictResult(Options):
    """Answers in the order of the inputs: the schema of ``compress predict --json``, version 1."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    schema_id: Literal["compress/predict"] = Field("compress/predict", alias="schema", description="Tells what it is.")
    schema_version: Literal[1] = Field(1, description="Grows when a field changes its meaning or goes.")
    abstention: Abstention | None = Field(None, description="The model's rule; null when none was fitted.")
    predictions: tuple[Prediction, ...] = Field(description="In the order of the inputs.")


def predict(
    model: str | Path | Transformer | Ensemble,
    inputs: Given | Sequence[Given],
    *,
    runtime: Runtime | None = None,
    text_column: str | None = None,
    stdin: Iterable[str] = (),
    budget: float | None = None,
    budget_cap: float | None = None,
) -> PredictResult:
    """Classify images or texts and say how sure the model is.

    Args:
        model: see ``open_model``; or a loaded model or ensemble, which is moved to where ``runtime`` computes.
        inputs: see ``read_inputs``: paths, folders, texts, tables, PIL images, ``-`` for the lines of ``stdin``.
        runtime: device, number format, batch size.
        text_column: of tables.
        stdin: the lines of standard input.
        budget: share of the heads that every input gets, in a model with budgets; None leaves it its own. Under another
            budget than its own the model's threshold of abstention is not applied.
        budget_cap: the largest share that an input gets.

    Raises:
        BadInputsError: inputs that cannot be read; no input is answered then.
        CompressError: the model cannot be opened, or gives a logit that is not finite.
    """
    runtime = runtime or Runtime()
    module: Transformer | Ensemble = model if isinstance(model, Ensemble) else open_model(model)
    first = _first(module)
    listed = [inputs] if isinstance(inputs, Given) else list(inputs)
    dataset = read_inputs(listed, first.config.preprocessing.kind, text_column=text_column, stdin=stdin)
    module = module.to(runtime.torch_device(), runtime.torch_dtype()).eval()
    abstention = module.config.abstention if isinstance(module, Transformer) else None
    if abstention is not None and (budget is not None or budget_cap is not None):
        log.warning("the model's threshold of abstention was fitted with its own budgets: it is not applied at another")
        abstention = None
    with at_budget([part for part in module.modules() if isinstance(part, Transformer)], budget, budget_cap):
        found = [
            prediction
            for batch in answers(module, first, dataset, runtime, "predict")
            for prediction in _answered(batch, first.labels, abstention)
        ]
    return PredictResult(abstention=abstention, predictions=tuple(found))


def _first(module: nn.Module) -> Transformer:
    """The model itself, or the first of an ensemble."""
    return next(part for part in module.modules() if isinstance(part, Transformer))


def _answered(batch: Answers, labels: Sequence[str], abstention: Abstention | None) -> Iterator[Prediction]:
    found = predictive_distribution(batch.logits)
    if bool(found.non_finite.any()):
        bad = batch.ids[int(torch.nonzero(found.non_finite)[0])]
        raise ModelError("a logit is not finite", where=bad, fix="check the model's weights, or use --dtype float32")
    abstains: list[bool | None] = [None] * len(batch.ids)
    if abstention is not None:
        abstains = (found.score(abstention.score) > abstention.threshold).tolist()
    information: list[float | None] = [None] * len(batch.ids)
    if found.mutual_information is not None:
        information = found.mutual_information.tolist()
    columns = (batch.ids, found.predicted.tolist(), found.confidence.tolist(), found.entropy.tolist())
    for name, label, probability, entropy, shared, abstain in zip(*columns, information, abstains, strict=True):
        yield Prediction(
            input=name,
            label=labels[label],
            probability=probability,
            entropy=entropy,
            mutual_information=shared,
            abstain=abstain,
        )
