"""Both towers of an open_clip model, to be trained together and saved as open_clip saves them.

Source: https://github.com/mlfoundations/open_clip, src/open_clip/{model,push_to_hf_hub}.py.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from compress.backbones.base import SavedPair, TowerPair, assemble
from compress.backbones.open_clip_preprocessing import image_preprocessing
from compress.backbones.open_clip_source import (
    CONFIG_FILE,
    Clip,
    ClipSource,
    build_clip,
    check_config,
    load_clip,
    resolve,
)
from compress.backbones.open_clip_tower import ADAPTER, take_apart
from compress.backbones.open_clip_zero_shot import embed_classes, tokenizer
from compress.backbones.source import ModelSource
from compress.data.preprocessing import ImagePreprocessing
from compress.transformer.config import BackboneConfig
from compress.transformer.model import Transformer

WEIGHTS_FILE = "open_clip_model.safetensors"
LARGEST_SCALE = math.log(100)
"""CLIP keeps its temperature from falling below 1/100 (Radford et al. 2021, section 2.5)."""


class ClipPair(TowerPair):
    """See ``TowerPair``.

    Args:
        clip: the library's model.
        source: where it came from.
        preprocessing: of its images.
    """

    def __init__(self, clip: Clip, source: ClipSource, preprocessing: ImagePreprocessing) -> None:
        super().__init__()
        self.clip, self.source, self.preprocessing = clip, source, preprocessing

    def tokenizer(self) -> Callable[[list[str]], Tensor]:
        """From texts to token ids ``(B, context length)``."""
        return tokenizer(self.source.model_cfg)

    def forward(self, images: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``TowerPair.forward``."""
        scale = self.clip.logit_scale.clamp(max=LARGEST_SCALE).exp()
        return self.clip.encode_image(images, normalize=True), self.clip.encode_text(tokens, normalize=True), scale

    def classifier(self, labels: Sequence[str], templates: Sequence[str]) -> Transformer:
        """See ``TowerPair.classifier``."""
        clip = copy.deepcopy(self.clip).eval()
        with torch.no_grad():
            clip.logit_scale.clamp_(max=LARGEST_SCALE)
        embeddings = embed_classes(clip, self.source.model_cfg, labels, templates)
        arguments = {"tower": "image", "model_cfg": self.source.model_cfg, "templates": list(templates)}
        backbone = BackboneConfig(adapter=ADAPTER.name, architecture=self.source.architecture, arguments=arguments)
        return assemble(take_apart(clip, "image", embeddings), backbone, labels, self.preprocessing)

    def recompute(self, wanted: bool) -> None:
        """See ``TowerPair.recompute``."""
        self.clip.set_grad_checkpointing(wanted)

    def saved(self) -> SavedPair:
        """``open_clip_config.json`` and the weights, which open_clip and ``open_clip:FOLDER`` read."""
        spec = self.preprocessing
        preprocess_cfg = {
            "size": list(spec.size),
            "mode": "RGB",
            "mean": list(spec.mean),
            "std": list(spec.std),
            "interpolation": spec.interpolation,
            "resize_mode": spec.resize,
            "fill_color": round(spec.fill * 255),
        }
        config = {"model_cfg": self.source.model_cfg, "preprocess_cfg": preprocess_cfg}
        text = json.dumps(config, indent=2) + "\n"
        return SavedPair((CONFIG_FILE, text.encode()), (WEIGHTS_FILE, self.clip.state_dict()))


def open_pair(source: ModelSource) -> ClipPair:
    """Open both towers; ``weights="random"`` draws them.

    Raises:
        ModelError: no such model, or weights that do not fit.
        UnsupportedModelError: a tower that the project cannot represent exactly.
    """
    found = resolve(source)
    check_config(found.model_cfg, "image")
    clip = build_clip(found.model_cfg)
    size = tuple(clip.visual.image_size)
    spec = image_preprocessing(found.preprocess_cfg, size, source.preprocessing, source.name)
    if found.weights is not None:
        load_clip(clip, found.weights(), resize_positions="image_size" in source.arguments)
    return ClipPair(clip, found, spec)
