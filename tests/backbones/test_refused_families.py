"""An allow-list: whatever computes attention differently is refused by its class name, before weights are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
from timm.models.vision_transformer import VisionTransformer

from compress.backbones.timm_vit import take_apart
from compress.errors import UnsupportedModelError
from compress.opening import open_model

TRANSFORMERS = {
    "position bias per head": ("mpnet", "MPNetForSequenceClassification"),
    "disentangled positions": ("deberta-v2", "DebertaV2ForSequenceClassification"),
    "windows with position bias": ("swin", "SwinForImageClassification"),
    "separate q and v bias": ("beit", "BeitForImageClassification"),
    "grouped-query": ("llama", "LlamaForSequenceClassification"),
    "grouped-query encoder": ("eurobert", "EuroBertForSequenceClassification"),
    "rotary and local": ("modernbert", "ModernBertForSequenceClassification"),
    "relative positions of two streams": ("xlnet", "XLNetForSequenceClassification"),
    "encoder and decoder": ("t5", "T5ForSequenceClassification"),
    "no attention": ("fnet", "FNetForSequenceClassification"),
    "unknown to the library": ("brandnew", "BrandNewForSequenceClassification"),
}


@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_transformers_of_other_attention(kind: str, tmp_path: Path) -> None:
    model_type, name = TRANSFORMERS[kind]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "architectures": [name]}))
    with pytest.raises(UnsupportedModelError, match=f"{name} is not supported; supported: BertForSequence") as caught:
        open_model(tmp_path)
    assert "\n" not in str(caught.value)


TIMM = {
    "position bias per head": ("vit_relpos_small_patch16_224", "VisionTransformerRelPos"),
    "separate q and v bias": ("beit_base_patch16_224", "Beit"),
    "rotary, separate q and v bias": ("eva02_tiny_patch14_224", "Eva"),
    "windows": ("swin_tiny_patch4_window7_224", "SwinTransformer"),
    "talking heads": ("cait_xxs24_224", "Cait"),
    "cross-covariance": ("xcit_nano_12_p16_224", "Xcit"),
    "pooled queries": ("mvitv2_tiny", "MultiScaleVit"),
    "no attention": ("mixer_s32_224", "MlpMixer"),
}


@pytest.mark.parametrize("kind", TIMM)
def test_timm_models_of_other_attention(kind: str) -> None:
    name, class_name = TIMM[kind]
    with pytest.raises(UnsupportedModelError, match=f"^{class_name} is not supported; supported: timm VisionTransf"):
        open_model(f"timm:{name}", weights="random", labels=("a", "b"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_layer": "diff"}, r"^blocks\.0: attention DiffAttention is not supported"),
        ({"scale_attn_norm": True}, r"^blocks\.0: Attention with a full-width norm or a gate"),
        ({"block_fn": timm.models.vision_transformer.ParallelScalingBlock}, r"^blocks\.0: ParallelScalingBlock is not"),
        ({"block_fn": timm.models.vision_transformer.ResPostBlock}, r"^blocks\.0: ResPostBlock is not supported"),
        ({"block_fn": timm.models.vision_transformer.ParallelThingsBlock}, r"^blocks\.0: ParallelThingsBlock is not"),
    ],
)
def test_vision_transformers_of_other_blocks(changes: dict[str, object], message: str) -> None:
    vit = VisionTransformer(img_size=16, patch_size=8, embed_dim=24, depth=2, num_heads=4, num_classes=3, **changes)
    with pytest.raises(UnsupportedModelError, match=message):
        take_apart(vit)
