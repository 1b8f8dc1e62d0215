"""Tiny timm vision transformers, one row per feature that the adapter claims."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from tiny.case import Case
from tiny.randomised import randomised
from torch import nn

from compress.backbones.base import assemble
from compress.backbones.timm_vit import take_apart
from compress.data.preprocessing import ImagePreprocessing
from compress.transformer.config import BackboneConfig

TINY: dict[str, Any] = {
    "img_size": 16,
    "patch_size": 4,
    "in_chans": 3,
    "num_classes": 5,
    "embed_dim": 24,
    "depth": 3,
    "num_heads": 4,
    "mlp_ratio": 2.0,
}

ARCHITECTURES = {
    VisionTransformer: "vit_tiny_patch16_224",
    VisionTransformerDistilled: "deit_tiny_distilled_patch16_224",
}


def vit_case(
    build: Callable[..., nn.Module], batch: int = 3, size: tuple[int, int] | None = None, **changes: Any
) -> Case:
    """A case from a constructor and its differences from ``TINY``."""
    arguments = {**TINY, **changes}
    library = randomised(build(**arguments))
    taken = copy.deepcopy(library)
    height, width = taken.patch_embed.img_size
    channels = arguments["in_chans"]
    preprocessing = ImagePreprocessing(
        size=(height, width), channels=channels, mean=(0.5,) * channels, std=(0.5,) * channels, resize="squash"
    )
    backbone = BackboneConfig(adapter="timm", architecture=ARCHITECTURES[build], arguments=arguments)
    labels = [f"class {index}" for index in range(arguments["num_classes"])]
    model = assemble(take_apart(taken), backbone, labels, preprocessing)
    images = torch.randn(batch, channels, *(size or (height, width)), generator=torch.Generator().manual_seed(1))
    return Case(
        library=library,
        model=model,
        inputs=images,
        logits=lambda vit, inputs: vit(inputs),
        output_weights=lambda vit: [block.attn.proj.weight for block in vit.blocks],
    )


CASES: dict[str, Callable[[], Case]] = {
    "timm plain": partial(vit_case, VisionTransformer),
    "timm distilled": partial(vit_case, VisionTransformerDistilled),
    "timm registers": partial(vit_case, VisionTransformer, reg_tokens=4),
    "timm registers without class position": partial(vit_case, VisionTransformer, reg_tokens=4, no_embed_class=True),
    "timm layer scale": partial(vit_case, VisionTransformer, init_values=1e-5),
    "timm no qkv bias": partial(vit_case, VisionTransformer, qkv_bias=False),
    "timm q/k norm": partial(vit_case, VisionTransformer, qk_norm=True),
    "timm average pooling": partial(vit_case, VisionTransformer, class_token=False, global_pool="avg"),
    "timm attention pool": partial(vit_case, VisionTransformer, class_token=False, global_pool="map"),
    "timm one channel": partial(vit_case, VisionTransformer, in_chans=1),
    "timm not square": partial(vit_case, VisionTransformer, img_size=(8, 24)),
    "timm dynamic size": partial(vit_case, VisionTransformer, dynamic_img_size=True, size=(8, 24)),
    "timm pre-norm": partial(vit_case, VisionTransformer, pre_norm=True),
}
