"""One tower of an open_clip model, image or text, as a zero-shot classifier.

Covers ``VisionTransformer`` and ``TextTransformer`` on both of open_clip's attention implementations. The classes are
fixed when the model is opened: their embeddings come from the whole text tower, and only one tower is kept.
Source: https://github.com/mlfoundations/open_clip, src/open_clip/{model,transformer}.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import open_clip
import torch
from open_clip.transformer import Attention as ClipAttention
from open_clip.transformer import (
    CustomResidualAttentionBlock,
    ResidualAttentionBlock,
    TextTransformer,
    VisionTransformer,
)
from torch import Tensor, nn

from compress.attention.attention import Attention, Projection
from compress.backbones.base import Parts, Preprocessor, assemble
from compress.backbones.open_clip_preprocessing import image_preprocessing, text_preprocessing
from compress.backbones.open_clip_source import (
    SUPPORTED,
    Clip,
    build_clip,
    check_config,
    load_clip,
    resolve,
)
from compress.backbones.open_clip_zero_shot import (
    FirstToken,
    PatchMean,
    ZeroShotHead,
    check_classes,
    embed_classes,
    linear,
    tokenizer,
)
from compress.backbones.source import RANDOM, ModelSource
from compress.backbones.values import reading_values
from compress.data.images import image_preprocessor
from compress.data.preprocessing import ImagePreprocessing, Preprocessing
from compress.errors import ModelError, UnsupportedModelError
from compress.registry import nearest
from compress.transformer.config import BackboneConfig
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden, Inputs, Stem

TOWERS = ("image", "text")
EXAMPLE_LABELS = ("0", "1")
Block: TypeAlias = ResidualAttentionBlock | CustomResidualAttentionBlock


class ImageStem(Stem):
    """Patches, class embedding, position embedding and the norm before the layers; inputs ``(B, 3, height, width)``."""

    prefix_tokens = 1

    def __init__(self, visual: VisionTransformer) -> None:
        super().__init__()
        self.conv1, self.patch_dropout, self.ln_pre = visual.conv1, visual.patch_dropout, visual.ln_pre
        self.class_embedding, self.positional_embedding = visual.class_embedding, visual.positional_embedding
        self.image_size: tuple[int, int] = tuple(visual.image_size)
        self.pooled = 1 if visual.pool_type == "tok" and visual.attn_pool is None else None

    def forward(self, inputs: Inputs) -> Hidden:
        patches = self.conv1(inputs).flatten(2).transpose(1, 2)
        class_token = self.class_embedding.to(patches.dtype).expand(patches.shape[0], 1, -1)
        x = torch.cat([class_token, patches], dim=1) + self.positional_embedding.to(patches.dtype)
        return Hidden(self.ln_pre(self.patch_dropout(x)), pooled=self.pooled)

    def example(self, batch: int = 1, length: int | None = None) -> Tensor:
        weight = self.conv1.weight
        return torch.zeros(batch, 3, *self.image_size, dtype=weight.dtype, device=weight.device)


class TextStem(Stem):
    """Token and position embedding; inputs ``{"input_ids": (B, N)}``, N at most the context length.

    Args:
        text: the text tower: a ``TextTransformer``, or a ``CLIP`` that carries its parts.
        pool: the token that is read: first, last, argmax (the highest id, CLIP's end of text) or eos (``end_token``).
        end_token: id of the end-of-text token.
    """

    def __init__(self, text: TextTransformer | open_clip.CLIP, pool: str, end_token: int) -> None:
        super().__init__()
        self.token_embedding, self.positional_embedding = text.token_embedding, text.positional_embedding
        self.causal = text.attn_mask is not None
        self.pool, self.end_token = pool, end_token

    def forward(self, inputs: Inputs) -> Hidden:
        if isinstance(inputs, Tensor):
            raise TypeError('a text tower takes {"input_ids": ids}, not a tensor')
        ids = inputs["input_ids"]
        states = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        pooled = self._pooled(ids)
        # Causal layers never show what follows the end of the text to the token that is read. Elsewhere the padding
        # is part of what the model was trained on, and open_clip lets it be seen.
        if self.causal and self.pool in ("argmax", "eos"):
            return Hidden(states, torch.arange(ids.shape[1], device=ids.device) <= pooled[:, None], pooled)
        return Hidden(states, pooled=pooled)

    def _pooled(self, ids: Tensor) -> Tensor:
        if self.pool == "argmax":
            return ids.argmax(dim=-1)
        if self.pool == "eos":
            return (ids == self.end_token).int().argmax(dim=-1)
        return ids.new_full((ids.shape[0],), 0 if self.pool == "first" else ids.shape[1] - 1)

    def example(self, batch: int = 1, length: int | None = None) -> dict[str, Tensor]:
        ids = torch.zeros(
            batch,
            length or self.positional_embedding.shape[0],
            dtype=torch.long,
            device=self.token_embedding.weight.device,
        )
        ids[:, -1] = self.end_token if self.pool == "eos" else self.token_embedding.num_embeddings - 1
        return {"input_ids": ids}


def take_apart(clip: Clip, tower: str, class_embeddings: Tensor) -> Parts:
    """The parts of one tower, its attentions replaced by the project's own.

    Args:
        clip: an open_clip model; the parts share its weights.
        tower: image or text.
        class_embeddings: ``(K, E)``.

    Raises:
        UnsupportedModelError: a class or an option that the project cannot represent exactly.
    """
    if type(clip) not in (open_clip.CLIP, open_clip.CustomTextCLIP):
        raise _unsupported(type(clip).__name__)
    take = _image_tower if tower == "image" else _text_tower
    return take(clip, class_embeddings)


def _image_tower(clip: Clip, class_embeddings: Tensor) -> Parts:
    visual = clip.visual
    if type(visual) is not VisionTransformer:
        raise _unsupported(type(visual).__name__, "visual")
    if getattr(visual, "attn_pool_contrastive", None) is not None or visual.pool_type not in ("tok", "avg"):
        raise _unsupported("a VisionTransformer with two attention pools or none", "visual")
    layers = [_layer(block, f"visual.{index}") for index, block in enumerate(visual.transformer.resblocks)]
    head = ZeroShotHead(
        visual.ln_post,
        FirstToken() if visual.pool_type == "tok" else PatchMean(),
        _projection(visual.proj),
        class_embeddings,
        clip.logit_scale,
        clip.logit_bias,
        attention_pool=visual.attn_pool,
        norm_after_pool=visual.final_ln_after_pool and visual.attn_pool is None,
    )
    return Parts(ImageStem(visual), layers, head)


def _text_tower(clip: Clip, class_embeddings: Tensor) -> Parts:
    if type(clip) is open_clip.CLIP:
        text, pool, end_token = clip, clip.text_pool_type, clip.text_eos_id
    elif type(clip.text) is TextTransformer:
        text, pool, end_token = clip.text, clip.text.pool_type, clip.text.eos_id
    else:
        raise _unsupported(type(clip.text).__name__, "text")
    if getattr(text, "cls_emb", None) is not None or getattr(text, "use_pad_mask", False) or pool == "none":
        raise _unsupported("a TextTransformer with embed_cls, use_pad_mask or without pooling", "text")
    stem = TextStem(text, pool, end_token)
    layers = [
        _layer(block, f"text.{index}", causal=stem.causal) for index, block in enumerate(text.transformer.resblocks)
    ]
    head = ZeroShotHead(
        text.ln_final,
        FirstToken(),  # the layers hand on the one token that is read
        _projection(text.text_projection),
        class_embeddings,
        clip.logit_scale,
        clip.logit_bias,
    )
    return Parts(stem, layers, head)


def _projection(projection: nn.Module | Tensor | None) -> nn.Module:
    """A bare matrix ``(C, E)`` as the linear layer it is."""
    if projection is None:
        return nn.Identity()
    return projection if isinstance(projection, nn.Module) else linear(projection.T.contiguous())


def _layer(block: Block, where: str, *, causal: bool = False) -> Layer:
    if type(block) is ResidualAttentionBlock and not hasattr(block, "ln_1_kv"):
        residual = block.ls_1
    elif type(block) is CustomResidualAttentionBlock:
        residual = nn.Sequential(block.ln_attn, block.ls_1)
    else:
        raise _unsupported(type(block).__name__, where)
    attention = _attention(block.attn, where, causal)
    return Layer(attention, block.mlp, block.ln_1, block.ln_2, residual1=residual, residual2=block.ls_2)


def _attention(source: Any, where: str, causal: bool) -> Attention:
    """The project's attention with the weights of either implementation."""
    if type(source) is nn.MultiheadAttention and source.bias_k is None and not source.add_zero_attn:
        options: dict[str, Any] = {"dropout": source.dropout}
    elif type(source) is ClipAttention:
        if source.scaled_cosine or not isinstance(source.ln_inner, nn.Identity):
            raise _unsupported("an Attention with scaled_cosine_attn or scale_attn_inner", where)
        options = {
            "query_norm": source.ln_q,
            "key_norm": source.ln_k,
            "dropout": source.attn_drop.p,
            "output_dropout": source.out_drop.p,
        }
    else:
        raise _unsupported(type(source).__name__, where)
    heads, width = source.num_heads, source.in_proj_weight.shape[1]
    attention = Attention(
        width,
        width // heads,
        [tuple(range(heads))],
        original_heads=heads,
        qkv_bias=source.in_proj_bias is not None,
        output_bias=source.out_proj.bias is not None,
        causal=causal,
        device="meta",
        **options,
    )
    weights = source.in_proj_weight.chunk(3)  # rows are ordered (3, H, D)
    biases = [None] * 3 if source.in_proj_bias is None else source.in_proj_bias.chunk(3)
    query, key, value = (Projection(weight, bias) for weight, bias in zip(weights, biases, strict=True))
    output = Projection(source.out_proj.weight * _column_scale(source), source.out_proj.bias)
    return attention.load_projections(query, key, value, output)


def _column_scale(source: Any) -> Tensor | float:
    """``scale_heads`` multiplies a head's context; its factor is folded into the columns that read this context."""
    scale = getattr(source, "head_scale", None)
    return 1.0 if scale is None else scale.flatten().repeat_interleave(source.head_dim)


def _unsupported(what: str, where: str | None = None) -> UnsupportedModelError:
    return UnsupportedModelError(f"{what} is not supported", where=where, fix=f"supported: {SUPPORTED}")


class OpenClipAdapter:
    """open_clip models by architecture name, folder or hub id; ``arguments.tower`` chooses the tower (image)."""

    name = "open_clip"

    def open(self, source: ModelSource) -> Transformer:
        """See ``Adapter.open``; ``source.labels`` and ``source.templates`` make the prompts of the classes."""
        labels = check_classes(source.labels, source.templates)
        tower = source.arguments.get("tower", "image")
        if tower not in TOWERS:
            raise ModelError(f"unknown tower {tower!r}", where="model.arguments", fix=nearest(str(tower), TOWERS))
        preprocessing: Preprocessing
        with reading_values(source.name):
            found = resolve(source)
            check_config(found.model_cfg, tower)
            clip = build_clip(found.model_cfg)
            if tower == "image":
                size = tuple(clip.visual.image_size)
                preprocessing = image_preprocessing(found.preprocess_cfg, size, source.preprocessing, source.name)
            else:
                preprocessing = text_preprocessing(clip.context_length, source.preprocessing, source.name)
        if found.weights is not None:
            load_clip(clip, found.weights(), resize_positions="image_size" in source.arguments)
        with reading_values(source.name):  # the tokenizer's options are the configuration's
            embeddings = embed_classes(clip, found.model_cfg, labels, source.templates)
        arguments = {"tower": tower, "model_cfg": found.model_cfg, "templates": list(source.templates)}
        backbone = BackboneConfig(adapter=self.name, architecture=found.architecture, arguments=arguments)
        return assemble(take_apart(clip, tower, embeddings), backbone, labels, preprocessing)

    def skeleton(self, backbone: BackboneConfig, classes: int) -> Parts:
        """See ``Adapter.skeleton``."""
        model_cfg = backbone.arguments["model_cfg"]
        check_config(model_cfg, backbone.arguments["tower"])  # parts of other libraries would be fetched from the hub
        clip = build_clip(model_cfg)
        return take_apart(clip, backbone.arguments["tower"], torch.zeros(classes, model_cfg["embed_dim"]))

    def preprocessor(self, model: Transformer) -> Preprocessor:
        """See ``Adapter.preprocessor``; texts become ``{"input_ids": (B, max_length)}``."""
        spec = model.config.preprocessing
        if isinstance(spec, ImagePreprocessing):
            return image_preprocessor(spec)
        tokenize = tokenizer(model.config.backbone.arguments["model_cfg"], spec.max_length)
        return functools.partial(_tokens, tokenize)

    def untrained(self, source: ModelSource, image_size: int | None = None) -> Transformer:
        """See ``Adapter.untrained``."""
        arguments = {**source.arguments, **({} if image_size is None else {"image_size": image_size})}
        changes: dict[str, Any] = {"weights": RANDOM, "arguments": arguments, "labels": source.labels or EXAMPLE_LABELS}
        if arguments.get("tower", "image") == "image":
            even = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize": "squash"}
            changes["preprocessing"] = source.preprocessing or even
        elif image_size is not None:
            raise ModelError("a model of texts has no image size", where=source.name, fix="give a length in tokens")
        return self.open(source.model_copy(update=changes))

    def library_model(self, backbone: BackboneConfig, classes: int) -> nn.Module:
        """See ``Adapter.library_model``; the product with the embeddings of the classes is left out."""
        clip = build_clip(backbone.arguments["model_cfg"])
        if backbone.arguments["tower"] == "image":
            return clip.visual
        clip.visual = nn.Identity()  # its weights are no part of this tower
        return LibraryTextTower(clip)


class LibraryTextTower(nn.Module):
    """The library's text tower behind the project's calling convention: a mapping in, embeddings ``(B, E)`` out."""

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.clip = clip.eval()
        self.eval()

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return self.clip.encode_text(inputs["input_ids"])


def _tokens(tokenize: Callable[[list[str]], Tensor], texts: Sequence[str]) -> Mapping[str, Tensor]:
    return {"input_ids": tokenize(list(texts))}


ADAPTER = OpenClipAdapter()
