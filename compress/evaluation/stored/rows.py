"""Member logits that wait in a file while they are predicted, so that memory never holds a whole set."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch
from torch import Tensor

BYTES = 4


class LogitRows:
    """The logits ``(M, N, K)`` float32 of one model on one set, filled batch by batch.

    Args:
        path: a file that does not exist yet; created with the first batch, whose shape tells M and K.
        samples: N.
    """

    def __init__(self, path: Path, samples: int) -> None:
        self._path, self._samples = path, samples
        self._mapped: Tensor | None = None
        self._filled = 0

    def add(self, logits: Tensor) -> None:
        """Put the ``(M, B, K)`` logits of the next B samples into the file."""
        if self._mapped is None:
            shape = (logits.shape[0], self._samples, logits.shape[2])
            _reserve(self._path, BYTES * math.prod(shape))
            self._mapped = torch.from_file(
                str(self._path), shared=True, size=math.prod(shape), dtype=torch.float32
            ).view(shape)
        self._mapped[:, self._filled : self._filled + logits.shape[1]] = logits.to("cpu", torch.float32)
        self._filled += logits.shape[1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K); all 0 for an empty set."""
        return (0, 0, 0) if self._mapped is None else tuple(self._mapped.shape)  # type: ignore[return-value]

    def load(self) -> Tensor:
        """The whole tensor, still in the file."""
        if self._mapped is None:
            return torch.empty(0, 0, 0)
        if self._filled != self._samples:
            raise ValueError(f"{self._filled} of {self._samples} samples were predicted")
        return self._mapped


def _reserve(path: Path, size: int) -> None:
    """Make a file of ``size`` bytes that are on the disk: a full one would end the process where a mapped page fails.

    Raises:
        OSError: there is no room.
    """
    with path.open("xb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
