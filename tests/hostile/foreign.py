"""Sound folders as the families' own libraries save them, one of each family.

Whatever a stranger changes in a configuration, fitting weights lie beside it: else it would be refused for lack of any.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from tiny.hf_folder import save_library, save_tokenizer
from tiny.open_clip_cases import random_clip, tiny_config

from compress.backbones.recognition import recognise
from compress.opening import open_model
from compress.transformer.model import Transformer

ARCHITECTURE = "vit_tiny_patch16_224"
ARGUMENTS: dict[str, Any] = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 4}
CONFIG: dict[str, Any] = {
    "architecture": ARCHITECTURE,
    "num_classes": 3,
    "model_args": ARGUMENTS,
    "pretrained_cfg": {
        "mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear", "crop_pct": 1.0, "crop_mode": "squash",
    },
}  # fmt: skip
CONFIG_NAMES = {"timm": "config.json", "hf": "config.json", "open_clip": "open_clip_config.json"}
PROMPTS: dict[str, Any] = {"labels": ("cat", "dog"), "templates": ("a photo of a {}.",)}
"""What a CLIP is asked for, whose folder knows no classes."""


def make_foreign(folder: Path) -> Path:
    """Sound folders ``folder/timm``, ``folder/hf`` and ``folder/open_clip``."""
    for family in CONFIG_NAMES:
        (folder / family).mkdir(parents=True)
    torch.manual_seed(0)
    vit = timm.create_model(ARCHITECTURE, num_classes=3, **ARGUMENTS)
    save_file(vit.state_dict(), folder / "timm" / "model.safetensors")
    (folder / "timm" / "config.json").write_text(json.dumps(CONFIG))
    save_library(folder / "hf")
    save_tokenizer(folder / "hf")
    clip = tiny_config(vision={"layers": 1}, text={"width": 8, "heads": 2, "layers": 1})
    save_file(random_clip(clip).state_dict(), folder / "open_clip" / "open_clip_model.safetensors")
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3}
    config = {"model_cfg": clip, "preprocess_cfg": preprocessing}
    (folder / "open_clip" / "open_clip_config.json").write_text(json.dumps(config))
    return folder


def with_config(foreign: Path, family: str, content: bytes, target: Path) -> Path:
    """A copy of a family's sound folder with another configuration."""
    shutil.copytree(foreign / family, target, copy_function=os.link)
    (target / CONFIG_NAMES[family]).unlink()  # it is the sound one until then
    (target / CONFIG_NAMES[family]).write_bytes(content)
    return target


def open_folder(folder: Path, **details: Any) -> Transformer:
    """Open a folder as the program does when it is named, with classes where a CLIP needs them."""
    return open_model(folder, **(PROMPTS if recognise(folder) == "open_clip" else {}), **details)
