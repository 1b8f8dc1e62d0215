"""timm's ``VisionTransformer`` and ``VisionTransformerDistilled`` on timm's own ``Attention``.

Covers plain ViT, DeiT, registers, LayerScale, q/k norm, missing qkv bias, average and attention pooling, any input
channels and size. Source: https://github.com/huggingface/pytorch-image-models, timm/models/vision_transformer.py.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import timm
import timm.data
import torch
from accelerate import init_empty_weights
from pydantic import ValidationError
from timm.layers import Attention as TimmAttention
from timm.layers import global_pool_nlc
from timm.models import load_model_config_from_hf
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from compress.attention.attention import Attention, Projection
from compress.backbones.base import Parts, Preprocessor, assemble
from compress.backbones.drawing import fresh_weights
from compress.backbones.source import RANDOM, ModelSource
from compress.backbones.values import reading_values
from compress.backbones.weights import load_strictly, read_weights
from compress.data.images import image_preprocessor
from compress.data.preprocessing import ImagePreprocessing
from compress.errors import ModelError, UnsupportedModelError, first_line
from compress.home import expanded
from compress.registry import nearest
from compress.transformer.config import BackboneConfig
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Head, Hidden, Inputs, Stem

SUPPORTED = "timm VisionTransformer and VisionTransformerDistilled with Block layers and timm.layers.Attention"
CLASSIFIER = ("head.", "head_dist.")
HUB_PREFIX = "hf-hub:"
POSITION_STD = "pos_embed_std"
"""An argument beside timm's: the deviation of fresh position embeddings. With timm's 0.02 the patches of tiny images,
most of them blank, are almost exchangeable, and training takes several times as long."""
EXAMPLE_CLASSES = 1000
NOT_OF_THE_MODEL = frozenset(inspect.signature(timm.create_model).parameters) - {"kwargs"}
"""What ``timm.create_model`` takes beside the model's own arguments; by some it opens files or asks the hub."""
"""In the place of weights: the library's own initialisation, for a model that is to be trained."""


class VitStem(Stem):
    """Patch embedding, prefix tokens and position embedding: the vision transformer without its blocks and head."""

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.vit = vit
        vit.blocks, vit.norm, vit.fc_norm, vit.head = nn.Sequential(), nn.Identity(), nn.Identity(), nn.Identity()
        vit.attn_pool = None
        if isinstance(vit, VisionTransformerDistilled):
            vit.head_dist = nn.Identity()
        self.prefix_tokens = vit.num_prefix_tokens
        token_pooling = vit.global_pool == "token"
        self.pooled = (2 if isinstance(vit, VisionTransformerDistilled) else 1) if token_pooling else None

    def forward(self, inputs: Inputs) -> Hidden:
        return Hidden(self.vit.forward_features(inputs), pooled=self.pooled)

    def example(self, batch: int = 1, length: int | None = None) -> Tensor:
        weight = next(self.vit.patch_embed.parameters())
        size = self.vit.patch_embed.img_size
        return torch.zeros(batch, self.vit.in_chans, *size, dtype=weight.dtype, device=weight.device)


class VitHead(Head):
    """Final norm, pooling and classifier; a distilled model's two are averaged, as timm does in evaluation."""

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.norm, self.attn_pool, self.fc_norm = vit.norm, vit.attn_pool, vit.fc_norm
        self.drop, self.classifier = vit.head_drop, vit.head
        self.distillation_classifier = vit.head_dist if isinstance(vit, VisionTransformerDistilled) else None
        self.per_member = (
            ("classifier",) if self.distillation_classifier is None else ("classifier", "distillation_classifier")
        )
        self.pooling, self.prefix_tokens = vit.global_pool, vit.num_prefix_tokens
        self.pool_prefix = vit.pool_include_prefix

    def forward(self, hidden: Hidden) -> Tensor:
        x = self.norm(hidden.states)
        if self.distillation_classifier is not None:
            return (self.classifier(self.drop(x[:, 0])) + self.distillation_classifier(self.drop(x[:, 1]))) / 2
        if self.attn_pool is not None:
            x = self.attn_pool(x if self.pool_prefix else x[:, self.prefix_tokens :])
        else:
            x = global_pool_nlc(x, self.pooling, self.prefix_tokens, self.pool_prefix)
        return self.classifier(self.drop(self.fc_norm(x)))


def take_apart(vit: VisionTransformer) -> Parts:
    """The parts of a timm vision transformer, its attentions replaced by the project's own.

    Raises:
        UnsupportedModelError: a class that the project cannot represent exactly.
    """
    if type(vit) not in (VisionTransformer, VisionTransformerDistilled):
        raise UnsupportedModelError(f"{type(vit).__name__} is not supported", fix=f"supported: {SUPPORTED}")
    layers = [_layer(block, f"blocks.{index}") for index, block in enumerate(vit.blocks)]
    head = VitHead(vit)
    return Parts(VitStem(vit), layers, head)


def _layer(block: Block, where: str) -> Layer:
    if type(block) is not Block:
        raise UnsupportedModelError(
            f"{type(block).__name__} is not supported", where=where, fix=f"supported: {SUPPORTED}"
        )
    source = block.attn
    if type(source) is not TimmAttention:
        raise UnsupportedModelError(
            f"attention {type(source).__name__} is not supported", where=where, fix=f"supported: {SUPPORTED}"
        )
    if not isinstance(getattr(source, "norm", nn.Identity()), nn.Identity) or getattr(source, "gate", None) is not None:
        raise UnsupportedModelError(
            "Attention with a full-width norm or a gate on its output is not supported",
            where=where,
            fix=f"supported: {SUPPORTED}",
        )
    attention = Attention(
        source.qkv.in_features,
        source.head_dim,
        [tuple(range(source.num_heads))],
        original_heads=source.num_heads,
        qkv_bias=source.qkv.bias is not None,
        output_bias=source.proj.bias is not None,
        query_norm=source.q_norm,
        key_norm=source.k_norm,
        dropout=source.attn_drop.p,
        output_dropout=source.proj_drop.p,
        device="meta",
    )
    weights = source.qkv.weight.chunk(3)  # rows are ordered (3, H, D)
    biases = [None] * 3 if source.qkv.bias is None else source.qkv.bias.chunk(3)
    query, key, value = (Projection(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    attention.load_projections(query, key, value, Projection(source.proj.weight, source.proj.bias))
    return Layer(
        attention,
        block.mlp,
        block.norm1,
        block.norm2,
        residual1=nn.Sequential(block.ls1, block.drop_path1),
        residual2=nn.Sequential(block.ls2, block.drop_path2),
    )


class TimmAdapter:
    """timm vision transformers by architecture name, hub id or folder."""

    name = "timm"

    def open(self, source: ModelSource) -> Transformer:
        """See ``Adapter.open``; ``source.arguments`` go to ``timm.create_model``.

        With ``weights="random"`` nothing is read or fetched, and classes and preprocessing must be given.
        """
        folder = expanded(source.name)
        with reading_values(source.name):
            config = _saved_config(source.name, folder)
            architecture, recorded = config.get("architecture", source.name), _from_config(config)
        drawn = source.weights == RANDOM
        local = None if drawn else source.weights or (str(folder) if folder.is_dir() else None)
        state = read_weights(local) if local else None
        arguments = {**recorded, **_from_weights(state, source), **source.arguments}
        if drawn and source.labels is None and "num_classes" not in arguments:
            raise ModelError("random weights know no classes", where=source.name, fix="name them with --label")
        fetched = state is None and not drawn
        with init_empty_weights(include_buffers=False):
            with reading_values(source.name):
                planned = _build(architecture, arguments)
            take_apart(planned)  # what is not supported is refused before anything is fetched
        with reading_values(source.name), fresh_weights():
            vit = _fetched(source.name, arguments) if fetched else _build(architecture, arguments)
        classes = getattr(vit, "num_classes", 0)
        if state is not None:
            fresh = load_strictly(vit, state, str(local), may_reset=CLASSIFIER, reset=source.reset_classifier)
        else:  # timm leaves out a published classifier of another number of classes
            fresh = drawn or getattr(vit, "pretrained_cfg", {}).get("num_classes") != classes
        if not classes:
            raise ModelError(
                "the model has no classifier",
                where=source.name,
                fix="pass the argument num_classes and --reset-classifier",
            )
        with reading_values(source.name):
            labels = _labels(source, config, classes)
            preprocessing = _preprocessing(source, _shipped(config, None if drawn else vit), vit)
        backbone = BackboneConfig(
            adapter=self.name, architecture=architecture, arguments={**arguments, "num_classes": classes}
        )
        return assemble(take_apart(vit), backbone, labels, preprocessing, untrained_classifier=fresh)

    def skeleton(self, backbone: BackboneConfig, classes: int) -> Parts:
        """See ``Adapter.skeleton``."""
        with fresh_weights():
            return take_apart(_build(backbone.architecture, {**backbone.arguments, "num_classes": classes}))

    def preprocessor(self, model: Transformer) -> Preprocessor:
        """See ``Adapter.preprocessor``."""
        spec = model.config.preprocessing
        if not isinstance(spec, ImagePreprocessing):
            raise ModelError(f"a vision transformer needs image preprocessing, not {spec.kind!r}")
        return image_preprocessor(spec)

    def untrained(self, source: ModelSource, image_size: int | None = None) -> Transformer:
        """See ``Adapter.untrained``."""
        arguments = {**source.arguments, **({} if image_size is None else {"img_size": image_size})}
        if source.labels is None:
            arguments = {"num_classes": EXAMPLE_CLASSES, **arguments}
        channels = int(arguments.get("in_chans", 3))
        even = [0.5] * channels
        preprocessing = {"mean": even, "std": even, "interpolation": "bicubic", "resize": "squash"}
        changes = {"weights": RANDOM, "arguments": arguments, "preprocessing": source.preprocessing or preprocessing}
        return self.open(source.model_copy(update=changes))

    def library_model(self, backbone: BackboneConfig, classes: int) -> nn.Module:
        """See ``Adapter.library_model``."""
        return _build(backbone.architecture, {**backbone.arguments, "num_classes": classes}).eval()


def _build(architecture: str, arguments: dict[str, Any]) -> nn.Module:
    """timm's model with fresh weights, from its registry alone."""
    name = architecture.split(".")[0]
    if not timm.is_model(name):
        known = timm.list_models("*vit*") + timm.list_models("*deit*")
        raise ModelError(f"timm has no model {architecture!r}", fix=nearest(name, known))
    try:
        vit = timm.create_model(architecture, pretrained=False, **_constructor(arguments))
        if POSITION_STD in arguments:
            nn.init.trunc_normal_(vit.pos_embed, std=float(arguments[POSITION_STD]))
        return vit
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise ModelError(
            f"timm refuses the arguments of {architecture} ({first_line(error)})", fix="check model.arguments"
        ) from None


def _fetched(name: str, arguments: dict[str, Any]) -> nn.Module:
    """timm's model with the published weights."""
    try:
        return timm.create_model(name, pretrained=True, **_constructor(arguments))
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"the pretrained weights of {name} cannot be fetched ({first_line(error)})", fix="pass --weights FILE"
        ) from None


def _saved_config(name: str, folder: Path) -> dict[str, Any]:
    """What timm saved beside the weights of a local folder or of ``hf-hub:ID``; empty for timm's own architectures."""
    if name.startswith(HUB_PREFIX):
        try:
            shipped, architecture, arguments = load_model_config_from_hf(name.removeprefix(HUB_PREFIX))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"not to be had from the hub ({first_line(error)})", where=name, fix="check the name and the network"
            ) from None
        return {"architecture": architecture, "model_args": arguments, "pretrained_cfg": shipped}
    if not folder.is_dir():
        return {}
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"not valid JSON ({error})", where=str(path), fix="fetch the file again") from None
    if not isinstance(config, dict) or "architecture" not in config:
        raise ModelError(
            "config.json with an architecture is missing", where=str(folder), fix="use timm:NAME --weights FILE"
        )
    return {"pretrained_cfg": config, **config}  # the oldest folders have both in one


def _from_config(config: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments that timm takes from a saved configuration."""
    shipped = config.get("pretrained_cfg") or {}
    recorded: dict[str, Any] = {}
    if "input_size" in shipped:
        channels, *size = shipped["input_size"]
        recorded = {"in_chans": channels, **({"img_size": size} if shipped.get("fixed_input_size") else {})}
    for values in (shipped, config):
        recorded.update({key: values[key] for key in ("num_classes", "global_pool") if values.get(key) is not None})
    return {**recorded, **(config.get("model_args") or {})}


def _from_weights(state: Mapping[str, Tensor] | None, source: ModelSource) -> dict[str, Any]:
    """What the shapes of the weights tell: the number of classes and of input channels."""
    found: dict[str, Any] = {}
    if state is not None and "head.weight" in state:
        found["num_classes"] = state["head.weight"].shape[0]
    if state is not None and "patch_embed.proj.weight" in state and state["patch_embed.proj.weight"].dim() == 4:
        found["in_chans"] = state["patch_embed.proj.weight"].shape[1]
    if (source.reset_classifier or source.weights == RANDOM) and source.labels is not None:
        found["num_classes"] = len(source.labels)
    return found


def _constructor(arguments: dict[str, Any]) -> dict[str, Any]:
    """JSON has no tuples, timm asks for them; raises ``ModelError`` for what is not the model's."""
    own = {key: value for key, value in arguments.items() if key != POSITION_STD}
    foreign = sorted(own.keys() & NOT_OF_THE_MODEL)
    if foreign:
        raise ModelError(f"{foreign[0]!r} is no argument of a model", where="model.arguments", fix="leave it out")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}


def _labels(source: ModelSource, config: dict[str, Any], classes: int) -> tuple[str, ...]:
    labels = source.labels or config.get("label_names") or (config.get("pretrained_cfg") or {}).get("label_names")
    if labels is None:
        return tuple(str(index) for index in range(classes))
    if isinstance(labels, Mapping):  # number of the class to its name
        numbered = {int(number): name for number, name in labels.items()}
        labels = tuple(numbered.get(index, str(index)) for index in range(classes))
    if len(labels) != classes:
        raise ModelError(
            f"{len(labels)} labels for a classifier of {classes} classes",
            where="labels",
            fix="name every class, or pass --reset-classifier to start a new classifier",
        )
    return tuple(str(label) for label in labels)


def _shipped(config: dict[str, Any], vit: VisionTransformer | None) -> dict[str, Any]:
    """The preprocessing that belongs to the weights, under timm's names; None: they are random, and anything fits."""
    own = config.get("pretrained_cfg") or (vit.pretrained_cfg if vit is not None else None)
    return {"crop_mode": "center", **own} if own else {"crop_pct": 1.0}


def _preprocessing(source: ModelSource, shipped: Mapping[str, Any], vit: VisionTransformer) -> ImagePreprocessing:
    """The preprocessing that came with the model; what is missing is asked for, never guessed."""
    values: dict[str, Any] = {
        "size": tuple(vit.patch_embed.img_size),
        "channels": vit.in_chans,
        "mean": shipped.get("mean"),
        "std": shipped.get("std"),
        "interpolation": shipped.get("interpolation"),
        "crop_fraction": shipped.get("crop_pct"),
        "resize": {"center": "shortest", "squash": "squash", "border": "longest"}.get(shipped.get("crop_mode", "")),
    }
    values = {key: value for key, value in values.items() if value is not None} | (source.preprocessing or {})
    missing = [key for key in ("mean", "std", "interpolation", "resize", "crop_fraction") if key not in values]
    if missing:
        raise ModelError(
            f"the model comes without its preprocessing ({', '.join(missing)})",
            where=source.name,
            fix="give model.preprocessing",
        )
    try:
        spec = ImagePreprocessing(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelError(
            f"{first['msg']}", where=f"preprocessing.{first['loc'][0]}", fix="correct model.preprocessing"
        ) from None
    if not len(spec.mean) == len(spec.std) == spec.channels:
        raise ModelError(
            f"the model takes {spec.channels} channels but its preprocessing has {len(spec.mean)} means",
            where=source.name,
            fix="give model.preprocessing with one mean and std per channel",
        )
    return spec


ADAPTER = TimmAdapter()
