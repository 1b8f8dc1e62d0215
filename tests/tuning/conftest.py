from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny.scratch_vit import tiny_source

from compress.data.base import Dataset
from compress.data.builtin import digits
from compress.data.subset import take
from compress.fusion.fuse import fuse
from compress.opening import open_model
from compress.pruning.options import Prune
from compress.pruning.prune import prune
from compress.transformer.model import Transformer
from compress.tuning.options import Tune


@pytest.fixture(scope="session")
def _fresh() -> Transformer:
    return open_model(tiny_source())


@pytest.fixture
def model(_fresh: Transformer) -> Transformer:
    return copy.deepcopy(_fresh)


@pytest.fixture(scope="session")
def data() -> Dataset:
    """61 digits: no batch size of the tests divides it."""
    return take(digits("train"), range(61))


@pytest.fixture(scope="session")
def validation() -> Dataset:
    return take(digits("calibration"), range(40))


@pytest.fixture
def options() -> Callable[..., Tune]:
    """Options that train fast, and their differences."""

    def make(**changes: Any) -> Tune:
        return Tune(**{"epochs": 2, "batch_size": 16, "lr": 1e-3, **changes})

    return make


@pytest.fixture(scope="session")
def members(_fresh: Transformer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three members that branch at layer 1 and keep 2 of 4 heads; the trunk keeps all."""
    out = tmp_path_factory.mktemp("members") / "pruned"
    chosen = Prune(members=3, keep=2, branch_layer=1, trunk_keep=4, max_overlap=0.5)
    prune(copy.deepcopy(_fresh), out, data=take(digits("calibration"), range(40)), options=chosen)
    return out


@pytest.fixture(scope="session")
def fused(members: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fused") / "fused"
    fuse(members, out)
    return out
