"""Reading weights that other tools wrote, and loading them without surprises."""

from __future__ import annotations

import json
import logging
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from compress.errors import ModelError, first_line
from compress.home import expanded

log = logging.getLogger(__name__)
PICKLED = (".pt", ".pth", ".bin")
FOLDER_NAMES = ("model.safetensors", "open_clip_model.safetensors", "pytorch_model.bin", "open_clip_pytorch_model.bin")
INDEX_NAMES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
# What torch's unpickler raises on bytes that are cut off, changed, or no pickle at all.
UNREADABLE = (
    pickle.UnpicklingError, RuntimeError, EOFError, AttributeError, LookupError, ValueError, TypeError, AssertionError,
    OverflowError, struct.error,
)  # fmt: skip
WRAPPERS = ("module.", "_orig_mod.", "model.")
NESTED = ("state_dict", "model_state_dict", "model")


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The state dict in a file, or in the weights file of a model folder (sharded ones too).

    Raises:
        ModelError: nothing there, an unknown kind of file, a damaged one, or one that holds pickled objects.
    """
    path = expanded(path)
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise ModelError("no such file or folder", where=str(path), fix="check the path of the weights")
    if path.suffix == ".safetensors":
        try:
            return without_wrappers(load_file(path), str(path))
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"not a readable safetensors file ({error})", where=str(path), fix="fetch it again"
            ) from None
    if path.suffix in PICKLED:
        return without_wrappers(_read_pickled(path), str(path))
    raise ModelError(
        f"unknown kind of weights {path.suffix!r}",
        where=str(path),
        fix="use .safetensors, or a state dict in .pt, .pth or .bin",
    )


def _read_folder(folder: Path) -> dict[str, Tensor]:
    for name in FOLDER_NAMES:
        if (folder / name).exists():
            return read_weights(folder / name)
    for name in INDEX_NAMES:
        if (folder / name).exists():
            state: dict[str, Tensor] = {}
            for shard in _shards(folder / name):
                state.update(read_weights(folder / shard))
            return state
    raise ModelError(
        "the folder holds no weights", where=str(folder), fix=f"expected one of {', '.join(FOLDER_NAMES + INDEX_NAMES)}"
    )


def _shards(index: Path) -> list[str]:
    """The files beside an index that it names."""
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        outside = sorted(shard for shard in shards if Path(shard).name != shard)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"not a readable index of weights ({error})", where=str(index), fix="fetch it again") from None
    if outside:
        raise ModelError(
            f"names {outside[0]!r}, which is no file beside it", where=str(index), fix="fetch the model again"
        )
    for shard in sorted(shards):
        place = index.parent / shard
        if not place.is_file():  # a folder would be searched for weights of its own
            raise ModelError("no such file or folder", where=str(place), fix="check the path of the weights")
    return sorted(shards)


def _reason(error: Exception) -> str:
    """What torch says, without its advice to unpickle all the same."""
    said = first_line(error, 120)
    return "torch's unpickler refuses it" if said.startswith("Weights only load failed") else said


def _read_pickled(path: Path) -> Mapping[str, Tensor]:
    fix = "save a state dict (torch.save(model.state_dict(), ...)) or safetensors"
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"cannot be read ({error.strerror or error})", where=str(path), fix="check the file") from None
    except UNREADABLE as error:
        raise ModelError(
            f"holds more than tensors, such as a whole model, or is damaged ({_reason(error)}); nothing was unpickled",
            where=str(path),
            fix=fix,
        ) from None
    for key in NESTED:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            log.info("%s: weights taken from %r", path, key)
            loaded = loaded[key]
            break
    if not isinstance(loaded, Mapping) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in loaded.items()
    ):
        raise ModelError("does not hold a state dict of tensors", where=str(path), fix=fix)
    return loaded


def without_wrappers(state: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Strip a wrapper's prefix (``module.``, ``_orig_mod.``, ``model.``), only when every key has it."""
    stripped = dict(state)
    found = True
    while found:
        found = False
        for prefix in WRAPPERS:
            if stripped and all(key.startswith(prefix) for key in stripped):
                log.info("%s: prefix %r removed from all %d keys", where, prefix, len(stripped))
                stripped = {key.removeprefix(prefix): value for key, value in stripped.items()}
                found = True
    return stripped


def load_strictly(
    module: nn.Module, state: Mapping[str, Tensor], where: str, *, may_reset: tuple[str, ...] = (), reset: bool = False
) -> bool:
    """Load every tensor, or raise.

    Args:
        module: the model to fill.
        state: its weights, in any floating dtype.
        where: where they come from, for the message.
        may_reset: prefixes of the classifier's names.
        reset: leave the classifier at its fresh values where its weights are missing or do not fit; it is logged.

    Returns:
        Whether any of the classifier was left so.

    Raises:
        ModelError: listing missing, unexpected and misshapen tensors.
    """
    own = module.state_dict()
    missing = sorted(own.keys() - state.keys())
    unexpected = sorted(state.keys() - own.keys())
    misfits = sorted(key for key in own.keys() & state.keys() if own[key].shape != state[key].shape)
    resettable = {key for key in (*missing, *misfits) if may_reset and key.startswith(may_reset)}
    if reset and resettable:
        log.warning("%s: classifier started anew: %s", where, ", ".join(sorted(resettable)))
        missing = [key for key in missing if key not in resettable]
        misfits = [key for key in misfits if key not in resettable]
    if missing or unexpected or misfits:
        shapes = [f"{key} {tuple(state[key].shape)} for {tuple(own[key].shape)}" for key in misfits]
        problems = [
            f"{title}: {_listed(names)}"
            for title, names in (("missing", missing), ("unexpected", unexpected), ("wrong shape", shapes))
            if names
        ]
        only_head = not unexpected and set(missing) | set(misfits) <= resettable
        fix = (
            "pass --reset-classifier, and --label for each class where labels are missing, to start the classifier anew"
            if only_head
            else "check the architecture and its arguments (--argument img_size=64)"
        )
        raise ModelError(f"the weights do not fit the model ({'; '.join(problems)})", where=where, fix=fix)
    usable = {key: value for key, value in state.items() if key not in (resettable if reset else ())}
    module.load_state_dict(usable, strict=False)
    return reset and bool(resettable)


def _listed(names: list[str], limit: int = 6) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, … ({len(names)} in all)"
