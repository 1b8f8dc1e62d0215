"""Model folders of ``transformers``, local or on the hub: where they lie, their configuration, their tensors' names."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from torch import Tensor
from transformers import PreTrainedModel

from compress.backbones.hf_families import Family
from compress.backbones.hf_tokenizer import TOKENIZER_FILES
from compress.errors import ModelError, UnsupportedModelError, first_line
from compress.home import expanded

log = logging.getLogger(__name__)
CONFIG = "config.json"
SAFETENSORS = ("model.safetensors", "model-*.safetensors", "model.safetensors.index.json")
PICKLED = ("pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json")
OLD_NORM_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def locate(name: str, *, weights: bool = True) -> Path:
    """The folder of a model: a local one, or the local copy of one on the hub.

    The hub is asked only for a name that is neither an existing path nor written like one (``./x``, ``/x``, ``~/x``).

    Args:
        name: a folder or a hub id.
        weights: whether the weights are needed too.

    Raises:
        ModelError: a missing folder, a file, or an id that the hub (offline: its local copy) does not have.
    """
    path = expanded(name)
    if path.is_dir():
        return path
    if path.exists():
        raise ModelError(
            f"a file, where a folder with {CONFIG} is needed",
            where=name,
            fix="name the folder, and the file as weights",
        )
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError("no such folder", where=name, fix="check the path")
    folder = _download(name, (CONFIG, *TOKENIZER_FILES, *(SAFETENSORS if weights else ())))
    if weights and not any(path for pattern in SAFETENSORS for path in folder.glob(pattern)):
        folder = _download(name, PICKLED)
    return folder


def _download(name: str, patterns: tuple[str, ...]) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except (OSError, HFValidationError) as error:
        raise ModelError(
            f"neither a folder nor to be had from the hub ({first_line(error)})",
            where=name,
            fix="check the name and the network",
        ) from None


def read_config(folder: Path, where: str) -> dict[str, Any]:
    """The content of the library's ``config.json``.

    Raises:
        ModelError: it is missing, damaged, or not the library's.
    """
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{CONFIG} is missing", where=where, fix="name a folder that save_pretrained wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{CONFIG} cannot be read ({error})", where=where, fix="fetch it again") from None
    if not isinstance(content, dict) or "model_type" not in content:
        raise ModelError(f"{CONFIG} names no model_type", where=where, fix="name a folder that save_pretrained wrote")
    return content


def check_problem(content: Mapping[str, Any], where: str) -> None:
    """Raise ``UnsupportedModelError`` when the outputs are not the logits of classes of which one is right."""
    problem_type = content.get("problem_type") or "single_label_classification"
    if problem_type != "single_label_classification":
        raise UnsupportedModelError(
            f"the problem type {problem_type!r} is not supported",
            where=where,
            fix="use a classifier of single labels, or pass --reset-classifier and --label",
        )


def class_names(content: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """The classes that ``config.json`` lists, in the order of the logits; ``LABEL_0, LABEL_1`` when it lists none.

    Raises:
        ModelError: the list has gaps.
    """
    named = content.get("id2label") or {str(index): f"LABEL_{index}" for index in range(content.get("num_labels", 2))}
    if sorted(named) != sorted(str(index) for index in range(len(named))):
        problem = f"id2label of {CONFIG} does not number the classes from 0"
        raise ModelError(problem, where=where, fix="mend it, or name the classes with --label")
    return tuple(str(named[str(index)]) for index in range(len(named)))


def fit_names(
    state: Mapping[str, Tensor],
    model: PreTrainedModel,
    family: Family,
    where: str,
    *,
    trained_as: str | None,
    reset: bool,
) -> dict[str, Tensor]:
    """The tensors under the names that ``model`` has for them.

    Names of old versions and of a bare encoder are translated, and what the model computes itself (position ids) or
    never runs (a pooler beside RoBERTa's classifier) is left out. With ``reset``, heads of other tasks are left out
    too, and listed.

    Args:
        state: as read.
        model: what they shall fill.
        where: where they come from, for messages.
        trained_as: the class that saved them, if known.
        reset: whether the classifier may start anew.

    Raises:
        ModelError: the weights have a head of another task, and ``reset`` is false.
    """
    own, encoder = model.state_dict(), f"{family.prefix}."
    named = {_modern(key): value for key, value in state.items()}
    if "embeddings.word_embeddings.weight" in named:
        log.info("%s: a bare encoder; prefix %r added to all keys", where, encoder)
        named = {f"{encoder}{key}": value for key, value in named.items()}
    computed = dict(model.named_buffers())
    unused = [key for key, value in named.items() if key not in own and _recomputed(key, value, computed)]
    unused += [key for key in named if key not in own and key.startswith(f"{encoder}pooler.")]
    if unused:
        log.info("%s: left out, for the model does not read them: %s", where, ", ".join(sorted(unused)))
    kept = {key: value for key, value in named.items() if key not in unused}
    other_task = trained_as not in (None, family.name, type(model.base_model).__name__)
    foreign = [key for key in kept if not key.startswith(encoder) and (key not in own or other_task)]
    classifier = {f"{family.head.classifier}.weight", f"{family.head.classifier}.bias"}
    if foreign and not reset and not classifier <= kept.keys():
        raise ModelError(
            f"the weights hold the head of another task ({', '.join(sorted(foreign)[:3])}, …)",
            where=where,
            fix="pass --reset-classifier and --label to start a classifier on their encoder",
        )
    if foreign and reset:
        log.warning("%s: heads of another task left out: %s", where, ", ".join(sorted(foreign)))
        kept = {key: value for key, value in kept.items() if key not in foreign}
    return kept


def _modern(key: str) -> str:
    """TensorFlow's names of LayerNorm's parameters, which the oldest checkpoints have, in today's form."""
    return next((key.removesuffix(old) + new for old, new in OLD_NORM_NAMES.items() if key.endswith(old)), key)


def _recomputed(key: str, value: Tensor, computed: Mapping[str, Tensor]) -> bool:
    """Whether a stored tensor is a buffer that the model fills itself (``position_ids`` were stored once)."""
    return key in computed and torch.equal(computed[key], value.to(computed[key]))
