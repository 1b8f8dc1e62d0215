"""open_clip's preprocessing in the project's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from compress.data.preprocessing import ImagePreprocessing, TextPreprocessing
from compress.errors import ModelError


def image_preprocessing(
    preprocess_cfg: Mapping[str, Any], size: tuple[int, int], overrides: Mapping[str, Any] | None, where: str
) -> ImagePreprocessing:
    """The evaluation transform of ``open_clip.image_transform``.

    Args:
        preprocess_cfg: open_clip's values; mean and std, resize_mode or interpolation may be unknown.
        size: height and width that the image tower reads, pixels.
        overrides: the user's values, under the project's names.
        where: the model, for messages.

    Raises:
        ModelError: a value is neither known nor given, or is wrong.
    """
    known: dict[str, Any] = {
        "size": size,
        "channels": 3,
        "mean": preprocess_cfg.get("mean"),
        "std": preprocess_cfg.get("std"),
        "resize": preprocess_cfg.get("resize_mode"),
        "interpolation": preprocess_cfg.get("interpolation"),
        "fill": (preprocess_cfg.get("fill_color") or 0) / 255,
    }
    for key in ("mean", "std"):
        if isinstance(known[key], (int, float)):
            known[key] = (known[key],) * 3
    # open_clip's own rules: "random" concerns training, and a shortest edge of a non-square size is always bicubic.
    if known["interpolation"] == "random" or (known["resize"] == "shortest" and size[0] != size[1]):
        known["interpolation"] = "bicubic"
    values = {key: value for key, value in known.items() if value is not None} | dict(overrides or {})
    missing = [key for key in ("mean", "std", "resize", "interpolation") if key not in values]
    if missing:
        raise ModelError(
            f"the preprocessing is not stored with the weights ({', '.join(missing)} can differ)",
            where=where,
            fix="give model.preprocessing",
        )
    return _checked(ImagePreprocessing, values)


def text_preprocessing(context_length: int, overrides: Mapping[str, Any] | None, where: str) -> TextPreprocessing:
    """Tokenization to the model's context length.

    Raises:
        ModelError: the user's value is wrong or longer than the context.
    """
    spec = _checked(TextPreprocessing, {"max_length": context_length} | dict(overrides or {}))
    if spec.max_length > context_length:
        raise ModelError(
            f"max_length {spec.max_length} is longer than the context of {context_length} tokens",
            where=where,
            fix="lower model.preprocessing",
        )
    return spec


def _checked(schema: type, values: dict[str, Any]) -> Any:
    try:
        return schema(**values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["preprocessing", *map(str, first["loc"])])
        raise ModelError(first["msg"], where=place, fix="correct model.preprocessing") from None
