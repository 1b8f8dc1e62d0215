"""Monte Carlo dropout: one model as an ensemble of its own, at the price of as many passes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from compress.errors import ModelError
from compress.evaluation.baselines.opening import Opening
from compress.evaluation.subject import Subject
from compress.transformer.mc_dropout import MonteCarloDropout, dropouts, rate, set_rate


def build(name: str, models: Sequence[str | Path | nn.Module], opening: Opening) -> Subject:
    """``options.dropout_passes`` passes with the model's own dropout, or with ``options.dropout_rate`` everywhere.

    Gal and Ghahramani, ICML 2016 (arXiv 1506.02142).

    Raises:
        ModelError: the model drops nothing and no rate was given; every pass would give the same answer.
    """
    options = opening.options
    subject = opening.subject(name, models[0])
    inside = list(subject.models)
    if isinstance(models[0], nn.Module):
        inside = copy.deepcopy(inside)  # a caller's own model stays as it is
    ensemble = MonteCarloDropout(inside, passes=options.dropout_passes, seed=options.seed)
    if options.dropout_rate is not None:
        for module in dropouts(ensemble):
            set_rate(module, options.dropout_rate)
    largest = max(map(rate, dropouts(ensemble)), default=0.0)
    if not largest:
        raise ModelError(
            "every dropout of the model has probability 0, so all passes would agree",
            where=name,
            fix="choose a rate with --dropout-rate",
        )
    subject.module, subject.passes = ensemble, options.dropout_passes
    subject.settings = {"passes": options.dropout_passes, "dropout_rate": largest}
    return subject
