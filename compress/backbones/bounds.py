"""A model that a stranger's configuration describes may not grow far beyond the weights that lie beside it.

Skeletons are built by the families' own libraries from whatever numbers the configuration holds, and a few digits can
ask for billions of layers or for tensors larger than the machine. The weights are the measure: their header is read
first, and it cannot declare more than the file holds.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.utils._python_dispatch import TorchDispatchMode

from compress.errors import ModelError

# Room for what has no weights in the file: dropouts and activations, and the other tower of a CLIP.
SPARE_MODULES, MODULES_PER_TENSOR = 4_000, 4
SPARE_BYTES, BYTES_PER_STORED_BYTE = 256 * 2**20, 16
LARGEST_NUMBER = 2**16


@dataclass(frozen=True)
class Bounds:
    """What a skeleton may need.

    Attributes:
        number: the largest whole number among the configuration's arguments.
        modules: modules in all.
        allocation: memory of one tensor, bytes.
    """

    number: int
    modules: int
    allocation: int

    @classmethod
    def of_weights(cls, shapes: Sequence[tuple[int, ...]], stored_bytes: int) -> Bounds:
        """The bounds for weights with tensors of these shapes, of so many bytes together."""
        filled = [shape for shape in shapes if 0 not in shape]  # one without elements can declare anything
        return cls(
            number=max(LARGEST_NUMBER, *(edge for shape in filled for edge in shape), 0),
            modules=SPARE_MODULES + MODULES_PER_TENSOR * len(filled),
            allocation=max(SPARE_BYTES, BYTES_PER_STORED_BYTE * stored_bytes),
        )

    def check_numbers(self, arguments: object) -> None:
        """Raise ``ModelError`` when a whole number among ``arguments`` (JSON values) is larger than allowed."""
        waiting = [arguments]
        while waiting:
            value = waiting.pop()
            if isinstance(value, Mapping):
                waiting.extend(value.values())
            elif isinstance(value, list | tuple):
                waiting.extend(value)
            elif isinstance(value, int) and abs(value) > self.number:
                raise _too_large(f"the number {_shown(value)}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, raise ``ModelError`` before more modules or a larger tensor come into being."""
        count = 0

        def registered(_module: nn.Module, _name: str, _submodule: nn.Module | None) -> None:
            nonlocal count
            count += 1
            if count > self.modules:
                raise _too_large(f"more than {self.modules} modules")

        hook = register_module_module_registration_hook(registered)
        try:
            with _WatchedAllocations(self.allocation):
                yield
        finally:
            hook.remove()


class _WatchedAllocations(TorchDispatchMode):
    """Looks at every operation that makes a tensor from sizes alone, before it runs."""

    def __init__(self, allocation: int) -> None:
        super().__init__()
        self._allocation = allocation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
        given |= kwargs or {}
        if not any(isinstance(value, torch.Tensor) for value in given.values()):
            device = given.get("device")
            dtype = given.get("dtype") or torch.get_default_dtype()
            needed = _elements(given) * dtype.itemsize
            if needed > self._allocation and (device is None or device.type != "meta"):
                raise _too_large(f"a tensor of {_shown(needed)} bytes")
        return func(*args, **(kwargs or {}))


def _elements(given: Mapping[str, Any]) -> int:
    """Elements of the tensor that a factory (``empty``, ``arange``, ``linspace``, ``eye``) is asked for."""
    if "size" in given:
        return math.prod(given["size"])
    if "end" in given:
        span = given["end"] - given.get("start", 0)
        steps = given["steps"] if "steps" in given else span / (given.get("step", 1) or 1)
        return max(0, math.ceil(steps))
    return int(given["n"]) * int(given.get("m", given["n"])) if "n" in given else 0


def _shown(number: int) -> str:
    """The number, or how long it is: a hostile one can have thousands of digits."""
    return str(number) if abs(number) < 10**20 else f"of {int(abs(number).bit_length() * 0.30103) + 1} digits"


def _too_large(what: str) -> ModelError:
    return ModelError(f"the configuration asks for {what}, far more than the weights beside it can fill")
