"""The table of encoder families of ``transformers``: which classes are supported and where each keeps its modules.

Source: https://github.com/huggingface/transformers, src/transformers/models/{bert,roberta,...}/modeling_*.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.albert import modeling_albert as albert
from transformers.models.bert import modeling_bert as bert
from transformers.models.camembert import modeling_camembert as camembert
from transformers.models.distilbert import modeling_distilbert as distilbert
from transformers.models.electra import modeling_electra as electra
from transformers.models.roberta import modeling_roberta as roberta
from transformers.models.xlm_roberta import modeling_xlm_roberta as xlm_roberta

from compress.errors import UnsupportedModelError


@dataclass(frozen=True)
class BlockPaths:
    """Where a block keeps its modules, as dotted paths from the block; None where the family has no such dropout."""

    attention: str
    query: str
    key: str
    value: str
    attention_dropout: str
    attention_output: str
    attention_output_dropout: str | None
    attention_norm: str
    mlp_input: str
    activation: str
    mlp_output: str
    mlp_dropout: str | None
    mlp_norm: str


@dataclass(frozen=True)
class HeadPaths:
    """Where the model keeps its classifier, as dotted paths from the model.

    Every family applies ``classifier(dropout(activation(dense(first token))))``; some drop before ``dense`` as well.
    """

    dense: str
    activation: type[nn.Module]
    dropout: str
    classifier: str
    drops_first: bool = False


@dataclass(frozen=True)
class Family:
    """One family of encoders for sequence classification.

    Attributes:
        model: the library's class with the classifier.
        block, attention: its classes of a layer and of self-attention, the only ones that are known to be exact.
        paths, head: where they keep their modules.
        blocks: path of the list of blocks, from the encoder.
        inner_blocks: path of the blocks of a group, from the group, when the list holds groups (ALBERT).
        projection: path of a linear layer after the embeddings, from the encoder, where there is one.
        segments: whether the embeddings take ``token_type_ids``.
        positions_after_padding: whether positions are counted from the padding token's id + 1, over real tokens only.
    """

    model: type[PreTrainedModel]
    block: type[nn.Module]
    attention: type[nn.Module]
    paths: BlockPaths
    head: HeadPaths
    blocks: str = "encoder.layer"
    inner_blocks: str | None = None
    projection: str | None = None
    segments: bool = True
    positions_after_padding: bool = False

    @property
    def name(self) -> str:
        """The library's class name: ``BertForSequenceClassification``."""
        return self.model.__name__

    @property
    def prefix(self) -> str:
        """The name of the encoder inside the model: ``bert``."""
        return str(self.model.base_model_prefix)

    @property
    def config_class(self) -> type[PreTrainedConfig]:
        """The library's configuration class."""
        return self.model.config_class

    def longest_input(self, config: PreTrainedConfig) -> int:
        """The number of tokens that have a position embedding."""
        unused = config.pad_token_id + 1 if self.positions_after_padding else 0
        return int(config.max_position_embeddings - unused)


_BERT_BLOCK = BlockPaths(
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    attention_dropout="attention.self.dropout",
    attention_output="attention.output.dense",
    attention_output_dropout="attention.output.dropout",
    attention_norm="attention.output.LayerNorm",
    mlp_input="intermediate.dense",
    activation="intermediate.intermediate_act_fn",
    mlp_output="output.dense",
    mlp_dropout="output.dropout",
    mlp_norm="output.LayerNorm",
)
_DISTILBERT_BLOCK = BlockPaths(
    attention="attention",
    query="attention.q_lin",
    key="attention.k_lin",
    value="attention.v_lin",
    attention_dropout="attention.dropout",
    attention_output="attention.out_lin",
    attention_output_dropout=None,
    attention_norm="sa_layer_norm",
    mlp_input="ffn.lin1",
    activation="ffn.activation",
    mlp_output="ffn.lin2",
    mlp_dropout="ffn.dropout",
    mlp_norm="output_layer_norm",
)
_ALBERT_BLOCK = BlockPaths(
    attention="attention",
    query="attention.query",
    key="attention.key",
    value="attention.value",
    attention_dropout="attention.attention_dropout",
    attention_output="attention.dense",
    attention_output_dropout="attention.output_dropout",
    attention_norm="attention.LayerNorm",
    mlp_input="ffn",
    activation="activation",
    mlp_output="ffn_output",
    mlp_dropout=None,  # the block has a dropout module that it never calls
    mlp_norm="full_layer_layer_norm",
)
_ROBERTA_HEAD = HeadPaths("classifier.dense", nn.Tanh, "classifier.dropout", "classifier.out_proj", drops_first=True)
_ELECTRA_HEAD = HeadPaths("classifier.dense", nn.GELU, "classifier.dropout", "classifier.out_proj", drops_first=True)


def _roberta(model: type[PreTrainedModel], block: type[nn.Module], attention: type[nn.Module]) -> Family:
    return Family(model, block, attention, _BERT_BLOCK, _ROBERTA_HEAD, positions_after_padding=True)


_ROWS = (
    Family(
        bert.BertForSequenceClassification,
        bert.BertLayer,
        bert.BertSelfAttention,
        _BERT_BLOCK,
        HeadPaths("bert.pooler.dense", nn.Tanh, "dropout", "classifier"),
    ),
    _roberta(roberta.RobertaForSequenceClassification, roberta.RobertaLayer, roberta.RobertaSelfAttention),
    _roberta(
        xlm_roberta.XLMRobertaForSequenceClassification,
        xlm_roberta.XLMRobertaLayer,
        xlm_roberta.XLMRobertaSelfAttention,
    ),
    _roberta(camembert.CamembertForSequenceClassification, camembert.CamembertLayer, camembert.CamembertSelfAttention),
    Family(
        distilbert.DistilBertForSequenceClassification,
        distilbert.TransformerBlock,
        distilbert.DistilBertSelfAttention,
        _DISTILBERT_BLOCK,
        HeadPaths("pre_classifier", nn.ReLU, "dropout", "classifier"),
        blocks="transformer.layer",
        segments=False,
    ),
    Family(
        electra.ElectraForSequenceClassification,
        electra.ElectraLayer,
        electra.ElectraSelfAttention,
        _BERT_BLOCK,
        _ELECTRA_HEAD,
        projection="embeddings_project",
    ),
    Family(
        albert.AlbertForSequenceClassification,
        albert.AlbertLayer,
        albert.AlbertAttention,
        _ALBERT_BLOCK,
        HeadPaths("albert.pooler", nn.Tanh, "dropout", "classifier"),
        blocks="encoder.albert_layer_groups",
        inner_blocks="albert_layers",
        projection="encoder.embedding_hidden_mapping_in",
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _ROWS}
SUPPORTED = ", ".join(FAMILIES)


def family_named(name: str, where: str | None = None) -> Family:
    """The family of a class name such as ``BertForSequenceClassification``.

    Raises:
        UnsupportedModelError: it is in no row of the table.
    """
    if name not in FAMILIES:
        raise UnsupportedModelError(f"{name} is not supported", where=where, fix=f"supported: {SUPPORTED}")
    return FAMILIES[name]


def family_of_config(content: dict[str, Any], where: str) -> Family:
    """The family of a ``config.json`` of the library, by its ``model_type``.

    Raises:
        UnsupportedModelError: naming the class that the configuration was saved with.
    """
    model_type = content.get("model_type")
    for family in FAMILIES.values():
        if family.config_class.model_type == model_type:
            return family
    return family_named((content.get("architectures") or [f"model type {model_type!r}"])[0], where)


def check_config(config: PreTrainedConfig, family: Family, where: str | None = None) -> None:
    """Refuse what the project's attention cannot represent, or what this version of the library would ignore.

    Raises:
        UnsupportedModelError: a decoder, relative positions, heads pruned by an older version of the library, or a
            width that the heads do not divide.
    """
    attention = family.attention.__name__
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    problem = None
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        problem = f"{attention} as a decoder (is_decoder, add_cross_attention) is not supported"
    elif positions != "absolute":
        problem = f"{attention} with position_embedding_type {positions!r} is not supported"
    elif getattr(config, "pruned_heads", None):
        problem = f"{attention} with pruned_heads in its configuration is not supported"
    elif config.hidden_size % config.num_attention_heads:
        heads, width = config.num_attention_heads, config.hidden_size
        problem = f"{attention} with {heads} heads for a width of {width} is not supported"
    if problem:
        raise UnsupportedModelError(problem, where=where, fix=f"supported: {SUPPORTED} with absolute positions")
