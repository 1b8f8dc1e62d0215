"""Every corruption by name, and the kind of data it is for. Importing this module imports no heavy library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from compress.errors import UsageError
from compress.registry import Registry, nearest

if TYPE_CHECKING:
    import numpy as np

Corruption = Callable[[Any, int, "np.random.Generator"], Any]
Severity = Literal[1, 2, 3, 4, 5]
SEVERITIES: tuple[Severity, ...] = (1, 2, 3, 4, 5)
ALL = "all"

IMAGE_CORRUPTIONS = ("noise", "blur", "contrast", "brightness", "jpeg")
TEXT_CORRUPTIONS = ("typos", "word_drop")

CORRUPTIONS: Registry[Corruption] = Registry(
    "corruption",
    {name: f"compress.data.corruptions.{name}:corrupt" for name in (*IMAGE_CORRUPTIONS, *TEXT_CORRUPTIONS)},
)


def corruptions_for(kind: Literal["image", "text"]) -> tuple[str, ...]:
    """The names of the corruptions of images or of texts."""
    return IMAGE_CORRUPTIONS if kind == "image" else TEXT_CORRUPTIONS


def possible_corruptions(names: Iterable[str]) -> tuple[str, ...]:
    """The corruptions that ``names`` may mean before the kind of data is known."""
    listed = tuple(names)
    return tuple(CORRUPTIONS) if ALL in listed else listed


def chosen_corruptions(names: Iterable[str], kind: Literal["image", "text"]) -> tuple[str, ...]:
    """The corruptions that ``names`` ask for, each once, ``all`` written out.

    Raises:
        UsageError: a corruption of the other kind of data.
    """
    fitting = corruptions_for(kind)
    chosen: dict[str, None] = {}
    for name in names:
        if name != ALL and name not in fitting:
            raise UsageError(f"{name!r} does not corrupt {kind} data", where="--shift", fix=nearest(name, fitting))
        chosen |= dict.fromkeys(fitting if name == ALL else (name,))
    return tuple(chosen)
