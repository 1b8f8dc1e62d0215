"""Encoders of ``transformers`` for sequence classification: BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT and their like.

What is supported and where each family keeps its modules is the table in ``hf_families``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from compress.backbones.base import Parts, Preprocessor, assemble
from compress.backbones.drawing import fresh_weights
from compress.backbones.hf_checkpoint import CONFIG, check_problem, class_names, fit_names, locate, read_config
from compress.backbones.hf_families import FAMILIES, Family, check_config, family_named, family_of_config
from compress.backbones.hf_layers import take_apart
from compress.backbones.hf_tokenizer import preprocessor_from, read_tokenizer, saved_files
from compress.backbones.source import ModelSource
from compress.backbones.values import reading_values
from compress.backbones.weights import load_strictly, read_weights
from compress.data.preprocessing import TextPreprocessing
from compress.errors import ModelError
from compress.registry import nearest
from compress.transformer.config import BackboneConfig
from compress.transformer.model import Transformer

LONGEST_DEFAULT = 512
EXAMPLE_LABELS = ("0", "1")
# Entries of a configuration that say nothing about the skeleton, or are told by the class and the labels.
NOT_STRUCTURE = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "auto_map",
        "dtype",
        "experts_implementation",
        "id2label",
        "label2id",
        "model_type",
        "num_labels",
        "problem_type",
        "quantization_config",
        "torch_dtype",
        "transformers_version",
    }
)


class HfEncoderAdapter:
    """Encoder classifiers by hub id or folder."""

    name = "hf"

    def open(self, source: ModelSource) -> Transformer:
        """See ``Adapter.open``; ``source.arguments`` replace entries of the library's configuration (dropouts)."""
        folder = locate(source.name, weights=source.weights is None)
        with reading_values(source.name):
            content = read_config(folder, source.name)
            family = family_of_config(content, source.name)
            if not source.reset_classifier:
                check_problem(content, source.name)
            labels = _labels(source, content)
            config = _configuration(family, {**content, **_checked_arguments(family, source)}, len(labels), source.name)
            model = _build(family, config, source.name)
            trained_as = next(iter(content.get("architectures") or ()), None)
            tokenizer = read_tokenizer(folder, source.name)
            preprocessing = _preprocessing(source, family.longest_input(config), tokenizer)
        where = source.weights or source.name
        state = read_weights(source.weights or folder)
        state = fit_names(state, model, family, where, trained_as=trained_as, reset=source.reset_classifier)
        classifier = (f"{family.head.dense}.", f"{family.head.classifier}.")
        fresh = load_strictly(model, state, where, may_reset=classifier, reset=source.reset_classifier)
        files = {} if tokenizer is None else saved_files(tokenizer)
        parts, backbone = take_apart(model), backbone_config(model)
        return assemble(parts, backbone, labels, preprocessing, files, untrained_classifier=fresh)

    def skeleton(self, backbone: BackboneConfig, classes: int) -> Parts:
        """See ``Adapter.skeleton``."""
        family = family_named(backbone.architecture)
        config = _configuration(family, backbone.arguments, classes, backbone.architecture)
        return take_apart(_build(family, config, backbone.architecture))

    def preprocessor(self, model: Transformer) -> Preprocessor:
        """See ``Adapter.preprocessor``; from the model's files, without a network."""
        spec = model.config.preprocessing
        if not isinstance(spec, TextPreprocessing):
            raise ModelError(f"a text encoder needs text preprocessing, not {spec.kind!r}")
        vocabulary = int(model.config.backbone.arguments["vocab_size"])
        return preprocessor_from(model.files, spec.max_length, vocabulary)

    def untrained(self, source: ModelSource, image_size: int | None = None) -> Transformer:
        """See ``Adapter.untrained``; ``source.name`` may also be a class of the table, for its default configuration.

        ``BertForSequenceClassification`` has the shape of BERT-base.
        """
        if image_size is not None:
            raise ModelError("a model of texts has no image size", where=source.name, fix="give a length in tokens")
        if source.name in FAMILIES:
            family, content = FAMILIES[source.name], {}
        else:
            content = read_config(locate(source.name, weights=False), source.name)
            family = family_of_config(content, source.name)
        labels = source.labels or EXAMPLE_LABELS
        config = _configuration(family, {**content, **_checked_arguments(family, source)}, len(labels), source.name)
        model = _build(family, config, source.name)
        preprocessing = _preprocessing(source, family.longest_input(config), None)
        return assemble(take_apart(model), backbone_config(model), labels, preprocessing)

    def library_model(self, backbone: BackboneConfig, classes: int) -> nn.Module:
        """See ``Adapter.library_model``."""
        family = family_named(backbone.architecture)
        config = _configuration(family, backbone.arguments, classes, backbone.architecture)
        return LibraryClassifier(_build(family, config, backbone.architecture))


class LibraryClassifier(nn.Module):
    """The library's classifier behind the project's calling convention: a mapping in, logits ``(B, K)`` out."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model.eval()
        self.eval()

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.model(**inputs).logits


def backbone_config(model: PreTrainedModel) -> BackboneConfig:
    """What ``HfEncoderAdapter.skeleton`` needs to rebuild ``model``: its class and every value of its configuration."""
    family = family_named(type(model).__name__)
    values = model.config.to_dict()
    arguments = {key: values[key] for key in sorted(_known(family)) if key in values}
    return BackboneConfig(adapter=HfEncoderAdapter.name, architecture=family.name, arguments=arguments)


def _known(family: Family) -> set[str]:
    """The names in the family's configuration that describe the skeleton."""
    return set(family.config_class().to_dict()) - NOT_STRUCTURE


def _checked_arguments(family: Family, source: ModelSource) -> dict[str, Any]:
    known = _known(family)
    for key in source.arguments:
        if key not in known:
            raise ModelError(
                f"{family.config_class.__name__} has no {key!r}", where="model.arguments", fix=nearest(key, known)
            )
    return source.arguments


def _labels(source: ModelSource, content: Mapping[str, Any]) -> tuple[str, ...]:
    """The user's class names, else those of ``config.json``."""
    if source.labels is None and source.reset_classifier and not content.get("id2label"):
        problem = "the classes of the new classifier are not known"
        raise ModelError(problem, where=source.name, fix="name them with --label")
    labels = source.labels or class_names(content, source.name)
    if len(labels) < 2:
        raise ModelError("a classifier needs at least two classes", where=source.name, fix="name them with --label")
    return labels


def _configuration(family: Family, values: Mapping[str, Any], classes: int, where: str) -> PreTrainedConfig:
    """The library's configuration of a classifier of so many classes, checked."""
    # Private entries, such as a choice of attention kernels to be fetched from the hub, are the library's own.
    given = {key: value for key, value in values.items() if key not in NOT_STRUCTURE and not key.startswith("_")}
    try:
        config = family.config_class(**given, num_labels=classes)
    except (StrictDataclassError, ValueError, TypeError) as error:
        raise ModelError(f"{CONFIG} has a wrong value ({_one_line(error)})", where=where, fix="mend it") from None
    check_config(config, family, where)
    return config


def _build(family: Family, config: PreTrainedConfig, where: str) -> PreTrainedModel:
    """The library's model with fresh weights, see ``fresh_weights``."""
    with fresh_weights():
        try:
            return family.model(config).eval()
        except (KeyError, ValueError, TypeError) as error:
            problem = f"{family.name} cannot be built ({_one_line(error)})"
            raise ModelError(problem, where=where, fix=f"check {CONFIG} and the arguments") from None


def _preprocessing(source: ModelSource, positions: int, tokenizer: PreTrainedTokenizerBase | None) -> TextPreprocessing:
    """The longest input: what the tokenizer, the positions and 512 allow, or what the user wants of it."""
    own = min(positions, LONGEST_DEFAULT, positions if tokenizer is None else tokenizer.model_max_length)
    wanted = {"max_length": own, **(source.preprocessing or {})}
    length = wanted.pop("max_length")
    where = "model.preprocessing"
    if wanted:
        raise ModelError(f"unknown key {min(wanted)!r}", where=where, fix="the only key of a text model is max_length")
    if not isinstance(length, int) or not 1 <= length <= positions:
        problem = f"max_length {length} is outside 1..{positions}"
        raise ModelError(problem, where=where, fix="choose a length in that range")
    return TextPreprocessing(max_length=length)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


ADAPTER = HfEncoderAdapter()
