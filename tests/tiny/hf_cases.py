"""Tiny encoders of transformers, one row per family and feature that the adapter claims; with padding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from tiny.case import Case
from tiny.randomised import randomised
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.albert.modeling_albert import AlbertForSequenceClassification
from transformers.models.bert.modeling_bert import BertForSequenceClassification
from transformers.models.camembert.modeling_camembert import CamembertForSequenceClassification
from transformers.models.distilbert.modeling_distilbert import DistilBertForSequenceClassification
from transformers.models.electra.modeling_electra import ElectraForSequenceClassification
from transformers.models.roberta.modeling_roberta import RobertaForSequenceClassification
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaForSequenceClassification

from compress.backbones.base import assemble
from compress.backbones.hf_encoder import backbone_config
from compress.backbones.hf_layers import take_apart
from compress.data.preprocessing import TextPreprocessing
from compress.transformer.parts import Inputs

TINY: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
    "type_vocab_size": 2,
    "num_labels": 5,
}
TINY_DISTILBERT: dict[str, Any] = {
    "vocab_size": 40,
    "dim": 24,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 20,
    "num_labels": 5,
}
LENGTHS = (11, 3, 7)


def tiny_library(build: type[PreTrainedModel], arguments: dict[str, Any] = TINY, **changes: Any) -> PreTrainedModel:
    """The library's model from a configuration and its differences from ``arguments``, with random weights."""
    return randomised(build(build.config_class(**{**arguments, **changes})))


def token_batch(lengths: tuple[int, ...], pad: int, *, segments: bool = True) -> dict[str, Tensor]:
    """Random token ids with padding on the right, two segments in each row."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    tokens = torch.randint(5, 40, mask.shape, generator=generator).masked_fill(~mask, pad)
    batch = {"input_ids": tokens, "attention_mask": mask.long()}
    if segments:
        batch["token_type_ids"] = (torch.arange(max(lengths)) >= 2).long().expand(len(lengths), -1) * mask
    return batch


def output_weights(library: nn.Module) -> list[nn.Parameter]:
    """The attention's output projection of every distinct layer."""
    endings = ("attention.output.dense.weight", "attention.out_lin.weight", "attention.dense.weight")
    return [parameter for name, parameter in library.named_parameters() if name.endswith(endings)]


def logits(library: nn.Module, inputs: Inputs) -> Tensor:
    """What the library answers."""
    return library(**inputs).logits


def encoder_case(build: type[PreTrainedModel], arguments: dict[str, Any] = TINY, **changes: Any) -> Case:
    """A case from a library class and its configuration."""
    library = tiny_library(build, arguments, **changes)
    labels = [f"class {index}" for index in range(library.config.num_labels)]
    parts = take_apart(copy.deepcopy(library))
    model = assemble(parts, backbone_config(library), labels, TextPreprocessing(max_length=16))
    segments = build is not DistilBertForSequenceClassification
    inputs = token_batch(LENGTHS, library.config.pad_token_id, segments=segments)
    return Case(library=library, model=model, inputs=inputs, logits=logits, output_weights=output_weights)


CASES: dict[str, Callable[[], Case]] = {
    "bert": partial(encoder_case, BertForSequenceClassification),
    "bert with relu": partial(encoder_case, BertForSequenceClassification, hidden_act="relu"),
    "roberta": partial(encoder_case, RobertaForSequenceClassification),
    "xlm-roberta": partial(encoder_case, XLMRobertaForSequenceClassification),
    "camembert": partial(encoder_case, CamembertForSequenceClassification),
    "distilbert": partial(encoder_case, DistilBertForSequenceClassification, TINY_DISTILBERT),
    "distilbert with sinusoids": partial(
        encoder_case, DistilBertForSequenceClassification, TINY_DISTILBERT, sinusoidal_pos_embds=True
    ),
    "electra": partial(encoder_case, ElectraForSequenceClassification, embedding_size=24),
    "electra with narrow embeddings": partial(encoder_case, ElectraForSequenceClassification, embedding_size=8),
    "albert": partial(encoder_case, AlbertForSequenceClassification, embedding_size=8),
    "albert in groups": partial(
        encoder_case,
        AlbertForSequenceClassification,
        embedding_size=8,
        num_hidden_layers=5,
        num_hidden_groups=2,
        inner_group_num=2,
    ),
}
