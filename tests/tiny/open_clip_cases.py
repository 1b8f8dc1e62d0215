"""Tiny open_clip models, both towers, one row per feature that the adapter claims."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import open_clip
import torch
from tiny.case import Case
from torch import Tensor, nn

from compress.backbones.base import assemble
from compress.backbones.open_clip_source import build_clip
from compress.backbones.open_clip_tower import take_apart
from compress.backbones.open_clip_zero_shot import embed_classes, tokenizer
from compress.data.preprocessing import ImagePreprocessing, Preprocessing, TextPreprocessing
from compress.transformer.config import BackboneConfig

LABELS = ("cat", "dog", "fish", "newt", "barn owl")
TEMPLATES = ("a photo of a {}.", "a blurry {}")
TEXTS = ("a cat", "the dog chased a very small fish around the whole of the old pond", "", "barn owls at night")


def tiny_config(vision: Mapping[str, Any] | None = None, text: Mapping[str, Any] | None = None, **top: Any) -> dict:
    """The arguments of a small ``open_clip.CLIP`` with the whole vocabulary of its tokenizer."""
    vision_cfg = {"image_size": 16, "patch_size": 4, "width": 48, "head_width": 12, "layers": 3, "mlp_ratio": 2.0}
    text_cfg = {"context_length": 12, "vocab_size": 49408, "width": 24, "heads": 4, "layers": 3, "mlp_ratio": 2.0}
    return {
        "embed_dim": 32,
        "vision_cfg": {**vision_cfg, **(vision or {})},
        "text_cfg": {**text_cfg, **(text or {})},
        **top,
    }


def random_clip(config: Mapping[str, Any], seed: int = 0) -> nn.Module:
    """The library's model, every parameter random: a fresh norm or LayerScale would hide a mistake."""
    clip = build_clip(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in clip.named_parameters():
            if not parameter.requires_grad:  # a fixed sine and cosine position embedding
                continue
            around = 1.0 if name.endswith("weight") and parameter.dim() == 1 else 0.0
            parameter.copy_(around + 0.3 * torch.randn(parameter.shape, generator=generator))
        clip.logit_scale.fill_(1.5)
    return clip


def resblocks(clip: nn.Module, tower: str) -> nn.ModuleList:
    """The library's layers of one tower."""
    text = clip.text if isinstance(clip, open_clip.CustomTextCLIP) else clip
    return (clip.visual if tower == "image" else text).transformer.resblocks


def library_logits(classes: Tensor, tower: str, clip: nn.Module, inputs: Any) -> Tensor:
    """open_clip's own zero-shot logits; ``classes`` is ``(E, K)`` from ``build_zero_shot_classifier``."""
    if tower == "image":
        features = clip.encode_image(inputs, normalize=True)
    else:
        features = clip.encode_text(inputs["input_ids"], normalize=True)
    logits = clip.logit_scale.exp() * features @ classes
    return logits if clip.logit_bias is None else logits + clip.logit_bias


def tower_parameters(classes: Tensor, tower: str, clip: nn.Module) -> int:
    """Those of one tower, of the scale and of the classes; scales of heads become part of the output projection."""
    custom = isinstance(clip, open_clip.CustomTextCLIP)
    others = ("text." if custom else ()) if tower == "image" else "visual."
    shared = ("transformer.", "token_embedding.", "positional_embedding", "ln_final.", "text_projection")
    own = [
        parameter.numel()
        for name, parameter in clip.named_parameters()
        if not name.startswith(others or shared) and not name.endswith("head_scale")
    ]
    return sum(own) + classes.numel()


def clip_case(tower: str, **changes: Any) -> Case:
    """A case from the differences to ``tiny_config``."""
    config = tiny_config(**changes)
    library = random_clip(config)
    tokens = tokenizer(config)
    classes = open_clip.build_zero_shot_classifier(library, tokens, LABELS, TEMPLATES)
    parts = take_apart(copy.deepcopy(library), tower, embed_classes(library, config, LABELS, TEMPLATES))
    preprocessing: Preprocessing
    inputs: Any
    if tower == "image":
        preprocessing = ImagePreprocessing(size=(16, 16), channels=3, mean=(0.5,) * 3, std=(0.5,) * 3)
        inputs = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    else:
        preprocessing = TextPreprocessing(max_length=config["text_cfg"]["context_length"])
        inputs = {"input_ids": tokens(list(TEXTS))}
    arguments = {"tower": tower, "model_cfg": config, "templates": list(TEMPLATES)}
    backbone = BackboneConfig(adapter="open_clip", architecture="tiny", arguments=arguments)
    return Case(
        library=library,
        model=assemble(parts, backbone, LABELS, preprocessing),
        inputs=inputs,
        logits=partial(library_logits, classes, tower),
        output_weights=lambda clip: [block.attn.out_proj.weight for block in resblocks(clip, tower)],
        parameters=partial(tower_parameters, classes, tower),
    )


def image_case(**vision: Any) -> Case:
    """An image tower from its differences to ``tiny_config``."""
    return clip_case("image", vision=vision)


def text_case(**text: Any) -> Case:
    """A text tower from its differences to ``tiny_config``."""
    return clip_case("text", text=text)


EOS = {"pool_type": "eos", "eos_id": 49407}

CASES: dict[str, Callable[[], Case]] = {
    "open_clip image": image_case,
    "open_clip image quick_gelu": partial(clip_case, "image", quick_gelu=True),
    "open_clip image logit bias": partial(clip_case, "image", init_logit_bias=-2.0, nonscalar_logit_scale=True),
    "open_clip image custom text": partial(clip_case, "image", custom_text=True),
    "open_clip image layer scale": partial(image_case, ls_init_value=1e-5),
    "open_clip image without norm before": partial(image_case, no_ln_pre=True),
    "open_clip image sin-cos position": partial(image_case, pos_embed_type="sin_cos_2d"),
    "open_clip image average pooling": partial(image_case, pool_type="avg"),
    "open_clip image norm after average": partial(image_case, pool_type="avg", final_ln_after_pool=True),
    "open_clip image attention pool": partial(
        image_case, attentional_pool=True, attn_pooler_queries=5, attn_pooler_heads=4
    ),
    "open_clip image own attention": partial(image_case, block_type="custom"),
    "open_clip image q/k norm": partial(image_case, qk_norm=True),
    "open_clip image head scale": partial(image_case, scale_heads=True),
    "open_clip image scaled sub-layers": partial(image_case, scale_attn=True, scale_fc=True, ls_init_value=0.1),
    "open_clip text": text_case,
    "open_clip text quick_gelu": partial(clip_case, "text", quick_gelu=True),
    "open_clip text own attention": partial(text_case, qk_norm=True, scale_heads=True, scale_attn=True),
    "open_clip text first token": partial(text_case, pool_type="first", no_causal_mask=True),
    "open_clip text last token": partial(text_case, pool_type="last", proj_type="linear", proj_bias=True),
    "open_clip text bidirectional": partial(clip_case, "text", custom_text=True, text={"no_causal_mask": True}),
    "open_clip text end token": partial(clip_case, "text", custom_text=True, text=EOS),
}
