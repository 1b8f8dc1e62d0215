"""The model that training starts from: as it is stored, or with random weights of its architecture."""

from __future__ import annotations

import copy
from pathlib import Path

from compress.backbones.base import assemble
from compress.backbones.drawing import drawn_from
from compress.backbones.registry import ADAPTERS
from compress.backbones.source import RANDOM, ModelSource
from compress.data.base import Dataset
from compress.errors import ModelError, UsageError
from compress.opening import artifact_folder, open_model, parse_source
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads
from compress.tuning.seeds import derived_seed


def starting_model(
    reference: str | Path | ModelSource | Transformer, dataset: Dataset, *, from_scratch: bool, seed: int
) -> Transformer:
    """The model to train, which no caller holds.

    Args:
        reference: see ``open_model``.
        dataset: gives the classes to a family's model that starts from random weights and names none.
        from_scratch: draw the weights anew.
        seed: seed of the weights.

    Raises:
        ModelError: the model cannot be opened, is of a kind that has no random weights, or has routers whose thresholds
            no other training would move.
    """
    if isinstance(reference, Transformer):
        model = reference if from_scratch else copy.deepcopy(reference)
    elif from_scratch and (isinstance(reference, ModelSource) or artifact_folder(reference) is None):
        model = open_model(_without_weights(reference, dataset))
    else:
        model = open_model(reference)
    if from_scratch:
        return redrawn(model, seed)
    if model.config.routing is not None and model.config.routing.choice == "token":
        raise ModelError(
            "the thresholds of its token choice fit the weights as they are, and only route moves them",
            where="routing",
            fix="train the model before it is routed, or route it with --choice expert",
        )
    return model


def redrawn(model: Transformer, seed: int) -> Transformer:
    """A model of the same architecture, heads and labels with the library's own random weights.

    Raises:
        ModelError: a fused model, whose weights come from members; or one with budgets or routers.
    """
    config = model.config
    if config.structure.members > 1:
        raise ModelError(
            "a fused model has no random weights of its own",
            where="--from-scratch",
            fix="train one model from scratch, then prune and fuse it",
        )
    if config.attached is not None:
        raise ModelError(
            f"what is trained from scratch would lose its {config.attached}",
            where="--from-scratch",
            fix="train the model from scratch first, then give it budgets or routers",
        )
    with drawn_from(derived_seed(seed, "weights")):
        parts = ADAPTERS[config.backbone.adapter].skeleton(config.backbone, len(config.labels))
    whole = assemble(parts, config.backbone, config.labels, config.preprocessing, model.files)
    return prune_heads(whole, [groups[0] for groups in config.structure.kept_heads])


def _without_weights(reference: str | Path | ModelSource, dataset: Dataset) -> ModelSource:
    """A family's model, its weights not read; its classes are the data's when it names none."""
    source = reference if isinstance(reference, ModelSource) else parse_source(str(reference))
    if source.labels is None and dataset.class_names is None:
        raise UsageError("the classes are not known", where=dataset.reference, fix="use labelled data")
    return source.model_copy(update={"weights": RANDOM, "labels": source.labels or dataset.class_names})
