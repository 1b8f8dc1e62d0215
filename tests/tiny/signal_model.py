"""A one-layer vision transformer, wired by hand, whose heads carry known signals.

Images are grey, 8x8, in four patches. Corner pixels of a patch hold the signals: the first pixel says the class (white
or black), the last pixel is white in the data that the model knows and black in foreign data. Attention is uniform.
Head ``TASK_HEAD`` passes the class on to the logits of classes 0 and 1; head ``OOD_HEAD`` passes the marker on to the
logit of class 2, which no image belongs to and which takes probability away when the marker is missing. The other heads
carry nothing.
"""

from __future__ import annotations

import torch
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from compress.backbones.base import assemble
from compress.backbones.timm_vit import take_apart
from compress.data.preprocessing import ImagePreprocessing
from compress.data.sequence import SequenceDataset
from compress.transformer.config import BackboneConfig
from compress.transformer.model import Transformer

TASK_HEAD, OOD_HEAD = 2, 1
WIDTH, HEADS = 8, 4


def signal_model() -> Transformer:
    """The model; layers, norms and MLP that would only disturb are off."""
    arguments = {
        "img_size": 8,
        "patch_size": 4,
        "in_chans": 1,
        "num_classes": 3,
        "embed_dim": WIDTH,
        "depth": 1,
        "num_heads": HEADS,
        "mlp_ratio": 1.0,
    }
    vit = VisionTransformer(**arguments)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.zero_()
        vit.patch_embed.proj.weight[0, 0, 0, 0] = 1
        vit.patch_embed.proj.weight[1, 0, 3, 3] = 1
        block = vit.blocks[0].attn
        value = block.qkv.weight.view(3, HEADS, WIDTH // HEADS, WIDTH)[2]
        columns = block.proj.weight.view(WIDTH, HEADS, WIDTH // HEADS)
        for head, (source, target) in {TASK_HEAD: (0, 2), OOD_HEAD: (1, 3)}.items():
            value[head, 0, source] = 1
            columns[target, head, 0] = 1
        vit.head.weight[0, 2], vit.head.weight[1, 2], vit.head.weight[2, 3] = 5, -5, -3
        vit.head.bias[2] = -2.4
    preprocessing = ImagePreprocessing(size=(8, 8), channels=1, mean=(0.5,), std=(0.5,), resize="squash")
    backbone = BackboneConfig(adapter="timm", architecture="vit_tiny_patch16_224", arguments=arguments)
    model = assemble(take_apart(vit), backbone, ["white", "black", "neither"], preprocessing)
    model.layers[0].norm1 = nn.Identity()
    model.head.norm = nn.Identity()
    return model


def signal_images(count: int, *, foreign: bool) -> SequenceDataset:
    """Images of class 0 and 1 in turn."""
    pixels = torch.full((count, 8, 8), 128, dtype=torch.uint8)
    corners = pixels.view(count, 2, 4, 2, 4)
    corners[0::2, :, 0, :, 0], corners[1::2, :, 0, :, 0] = 255, 0
    corners[:, :, 3, :, 3] = 0 if foreign else 255
    images = [Image.fromarray(own) for own in pixels.numpy()]
    if foreign:
        return SequenceDataset(images, "image")
    names = ("white", "black", "neither")
    return SequenceDataset(images, "image", class_names=names, labels=[index % 2 for index in range(count)])
