"""Independent random streams from one seed, each a function of its purpose and nothing else."""

from __future__ import annotations

import hashlib
import json

import torch


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A seed for ``purpose``, such as ``("order", epoch)``; unrelated to that of any other purpose or seed."""
    digest = hashlib.sha256(json.dumps([seed, *purpose]).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """A CPU generator seeded for ``purpose``."""
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))
