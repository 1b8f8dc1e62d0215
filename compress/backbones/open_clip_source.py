"""Where an open_clip model comes from: its configuration, its weights, and the library's own model built from them.

Source: https://github.com/mlfoundations/open_clip, src/open_clip/factory.py.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import open_clip
from open_clip.model import convert_to_custom_text_state_dict, resize_pos_embed
from open_clip.pretrained import download_pretrained_from_hf
from open_clip.transform import PreprocessCfg

from compress.backbones.drawing import fresh_weights
from compress.backbones.source import RANDOM, ModelSource
from compress.backbones.weights import PICKLED, load_strictly, read_weights
from compress.errors import ModelError, UnsupportedModelError, first_line
from compress.home import expanded
from compress.registry import nearest

Clip: TypeAlias = open_clip.CLIP | open_clip.CustomTextCLIP

log = logging.getLogger(__name__)

CONFIG_FILE = "open_clip_config.json"
HUB_PREFIX = "hf-hub:"
ARGUMENTS = ("tower", "quick_gelu", "image_size")
SUPPORTED = (
    "CLIP and CustomTextCLIP; image towers that are an open_clip VisionTransformer, text towers that are a "
    "TextTransformer; ResidualAttentionBlock and CustomResidualAttentionBlock layers; the SimpleTokenizer"
)
OPENAI_EXTRAS = ("input_resolution", "context_length", "vocab_size")


@dataclass(frozen=True)
class ClipSource:
    """A model before it is built.

    Attributes:
        architecture: its name for people.
        model_cfg: the arguments of ``open_clip.CLIP``, as in ``open_clip_config.json``.
        preprocess_cfg: the image preprocessing under open_clip's names; what is not known is absent.
        weights: gives the file or folder, fetching it first where it is remote; None for random weights.
    """

    architecture: str
    model_cfg: dict[str, Any]
    preprocess_cfg: dict[str, Any]
    weights: Callable[[], Path] | None


def resolve(source: ModelSource) -> ClipSource:
    """Find configuration and weights; only a tag and a name that starts with ``hf-hub:`` need a network.

    Raises:
        ModelError: no such architecture, folder, file or tag; or no weights were named.
    """
    unknown = [key for key in source.arguments if key not in ARGUMENTS]
    if unknown:
        raise ModelError(
            f"unknown argument {unknown[0]!r}", where="model.arguments", fix=nearest(unknown[0], ARGUMENTS)
        )
    built_in = source.name.replace("/", "-")
    if source.name.startswith(HUB_PREFIX):
        found = _from_hub(source)
    elif built_in in open_clip.list_models():
        found = _from_name(built_in, source)
    else:
        found = _from_folder(expanded(source.name), source)
    changed = {key: source.arguments[key] for key in ("quick_gelu",) if key in source.arguments}
    vision = dict(found.model_cfg["vision_cfg"])
    if "image_size" in source.arguments:
        vision["image_size"] = _image_size(source.arguments["image_size"], vision.get("patch_size", 16))
    return replace(found, model_cfg={**found.model_cfg, **changed, "vision_cfg": vision})


def _image_size(value: Any, patch: Any) -> int | list[int]:
    """The user's ``image_size``, pixels: one number or height and width, none smaller than a patch."""
    edges = list(value) if isinstance(value, (list, tuple)) else [value]
    smallest = max(patch) if isinstance(patch, (list, tuple)) else patch
    if len(edges) not in (1, 2) or not all(isinstance(edge, int) and edge >= smallest for edge in edges):
        raise ModelError(
            f"image_size {value!r} is neither a number of pixels nor two, of at least one patch ({smallest})",
            where="model.arguments",
            fix="give one number, or height and width",
        )
    return edges if len(edges) == 2 else edges[0]


def _from_name(name: str, source: ModelSource) -> ClipSource:
    """One of open_clip's own architectures, with a tag or a file of weights."""
    model_cfg, tags = open_clip.get_model_config(name), open_clip.list_pretrained_tags_by_model(name)
    if source.weights is None:
        shown = f", or a tag ({', '.join(tags[:3])}, …)" if tags else ""
        raise ModelError(
            "no weights are named, and open_clip would start from random ones",
            where=source.name,
            fix=f"pass --weights with a file{shown}",
        )
    if source.weights == RANDOM:
        return ClipSource(name, model_cfg, asdict(PreprocessCfg()), _local_weights(source))
    tag = open_clip.get_pretrained_cfg(name, source.weights)
    if not tag:
        if not _is_path(source.weights):
            hint = nearest(source.weights, tags) if tags else "pass a file"
            raise ModelError(f"{name} has no weights {source.weights!r}", where="--weights", fix=hint)
        weights = _local_weights(source)
        if not model_cfg.get("quick_gelu") and "quick_gelu" not in source.arguments and _some_quick_gelu(name):
            log.warning("%s: GELU is taken as the activation; for weights trained with QuickGELU set quick_gelu", name)
        return ClipSource(name, model_cfg, _agreed_preprocessing(name), weights)
    quick_gelu = bool(tag.get("quick_gelu", False))
    if quick_gelu != bool(model_cfg.get("quick_gelu", False)):
        log.info("%s: the weights %r were trained with quick_gelu=%s, which is used", name, source.weights, quick_gelu)
    fetch = functools.partial(_fetched, f"{name} {source.weights}", open_clip.download_pretrained, tag)
    return ClipSource(name, {**model_cfg, "quick_gelu": quick_gelu}, dict(tag), fetch)


def _from_folder(folder: Path, source: ModelSource) -> ClipSource:
    """A folder with ``open_clip_config.json``, as open_clip saves it for the hub."""
    if not folder.exists():
        if os.sep in source.name or source.name.startswith((".", "~")):
            raise ModelError("no such folder", where=source.name, fix="check the path, or name an architecture")
        raise ModelError(f"open_clip has no model {source.name!r}", fix=nearest(source.name, open_clip.list_models()))
    if not folder.is_dir():
        raise ModelError("is not a folder", where=source.name, fix="use open_clip:ARCHITECTURE --weights FILE")
    weights = _local_weights(source) if source.weights else functools.partial(Path, folder)
    return _from_config(folder.name, folder / CONFIG_FILE, weights)


def _from_hub(source: ModelSource) -> ClipSource:
    """A repository of the hub, ``hf-hub:OWNER/NAME``."""
    repository = source.name.removeprefix(HUB_PREFIX)
    config = _fetched(source.name, download_pretrained_from_hf, repository, filename=CONFIG_FILE)
    fetch = functools.partial(_fetched, source.name, download_pretrained_from_hf, repository)
    return _from_config(repository, config, _local_weights(source) if source.weights else fetch)


def _from_config(name: str, path: Path, weights: Callable[[], Path] | None) -> ClipSource:
    if not path.is_file():
        raise ModelError("no such file", where=str(path), fix="use open_clip:ARCHITECTURE --weights FILE")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"not valid JSON ({error})", where=str(path), fix="fetch the file again") from None
    model_cfg = config.get("model_cfg", config) if isinstance(config, Mapping) else {}
    if not all(isinstance(model_cfg.get(key), Mapping) for key in ("vision_cfg", "text_cfg")):
        raise ModelError("has no vision_cfg and text_cfg in model_cfg", where=str(path), fix="fetch the file again")
    shipped = config.get("preprocess_cfg") or {}
    # open_clip writes mean and deviation always; an absent resize or interpolation means its default.
    known = {**asdict(PreprocessCfg()), **shipped} if {"mean", "std"} <= shipped.keys() else dict(shipped)
    return ClipSource(name, dict(model_cfg), known, weights)


def _local_weights(source: ModelSource) -> Callable[[], Path] | None:
    """Gives the path of the weights that the user named; None for random ones."""
    if source.weights == RANDOM:
        log.warning("%s: random weights, seed 0; the predictions mean nothing", source.name)
        return None
    path = expanded(str(source.weights))
    if not path.exists():
        raise ModelError("no such file or folder", where=str(source.weights), fix="check the path of the weights")
    return functools.partial(Path, path)


def _is_path(text: str) -> bool:
    return os.sep in text or text.endswith((".safetensors", *PICKLED)) or expanded(text).exists()


def _fetched(what: str, fetch: Callable[..., str], *arguments: Any, **options: Any) -> Path:
    try:
        return Path(fetch(*arguments, **options))
    except (OSError, RuntimeError) as error:
        raise ModelError(f"cannot be fetched ({first_line(error)})", where=what, fix="pass --weights FILE") from None


def _some_quick_gelu(name: str) -> bool:
    tags = open_clip.list_pretrained_tags_by_model(name)
    return any(open_clip.get_pretrained_cfg(name, tag).get("quick_gelu") for tag in tags)


def _agreed_preprocessing(name: str) -> dict[str, Any]:
    """What all published weights of an architecture have in common; open_clip's defaults when there are none."""
    defaults = asdict(PreprocessCfg())
    published = [
        {key: open_clip.get_pretrained_cfg(name, tag).get(key) or value for key, value in defaults.items()}
        for tag in open_clip.list_pretrained_tags_by_model(name)
    ] or [defaults]
    return {key: value for key, value in published[0].items() if all(other[key] == value for other in published)}


def check_config(model_cfg: Mapping[str, Any], tower: str) -> None:
    """Refuse what cannot be represented before anything large is built or read.

    Raises:
        UnsupportedModelError: naming the class.
    """
    text, vision = model_cfg["text_cfg"], model_cfg["vision_cfg"]
    timm_name = str(vision.get("timm_model_name") or "")
    refused = {
        "CoCa": "multimodal_cfg" in model_cfg,
        "HFTextEncoder": bool(text.get("hf_model_name")),
        "HFTokenizer": bool(text.get("hf_tokenizer_name")),
        "TimmModel": bool(timm_name) and (tower == "image" or ":" in timm_name),
        "ModifiedResNet": tower == "image" and isinstance(vision.get("layers"), (list, tuple)),
    }
    for name, found in refused.items():
        if found:
            raise UnsupportedModelError(f"open_clip's {name} is not supported", fix=f"supported: {SUPPORTED}")


def build_clip(model_cfg: Mapping[str, Any]) -> Clip:
    """The library's model with random weights (see ``fresh_weights``).

    Raises:
        ModelError: open_clip refuses the configuration.
    """
    arguments = {key: value for key, value in model_cfg.items() if key != "custom_text"}
    for tower in ("vision_cfg", "text_cfg"):  # with output_tokens a tower would return a tuple
        arguments[tower] = {key: value for key, value in arguments[tower].items() if key != "output_tokens"}
    if arguments["vision_cfg"].get("timm_model_name"):
        arguments["vision_cfg"]["timm_model_pretrained"] = False
    model_class = open_clip.CustomTextCLIP if model_cfg.get("custom_text") else open_clip.CLIP
    try:
        with fresh_weights():
            return model_class(**arguments).eval()
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        raise ModelError(
            f"open_clip refuses the model's configuration ({first_line(error)})",
            where="model_cfg",
            fix="check its vision_cfg and text_cfg",
        ) from None


def load_clip(clip: Clip, weights: Path, *, resize_positions: bool) -> None:
    """Load the weights of a whole CLIP strictly.

    Args:
        clip: the model to fill.
        weights: a file or folder.
        resize_positions: interpolate the image tower's position embedding to the model's grid, as open_clip does.

    Raises:
        ModelError: the weights cannot be read, or do not fit.
    """
    state = {key: value for key, value in read_weights(weights).items() if key not in OPENAI_EXTRAS}
    if isinstance(clip, open_clip.CustomTextCLIP):
        state = convert_to_custom_text_state_dict(state)
    for name in ("logit_scale", "logit_bias"):  # saved as a scalar or as a vector of one
        own = getattr(clip, name)
        if own is not None and name in state and state[name].numel() == 1:
            state[name] = state[name].reshape(own.shape)
    if resize_positions:
        resize_pos_embed(state, clip)
    load_strictly(clip, state, str(weights))
