"""Which family saved a local folder, told without importing any of their libraries."""

from __future__ import annotations

import json
from pathlib import Path

OPEN_CLIP_CONFIG = "open_clip_config.json"
CONFIG = "config.json"


def recognise(folder: Path) -> str | None:
    """The adapter whose library saved ``folder``, supported or not; None when it is no model folder.

    open_clip writes a configuration under its own name, timm one with an ``architecture``, transformers one with a
    ``model_type``.
    """
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return "open_clip"
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    return "timm" if "architecture" in content else "hf" if "model_type" in content else None
