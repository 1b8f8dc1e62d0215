from __future__ import annotations

from pathlib import Path

import pytest
from tiny.timm_cases import CASES

from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artifacts ``pruned`` (three members) and ``fused``."""
    root = tmp_path_factory.mktemp("chain")
    prune(CASES["timm plain"]().model, root / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    fuse(root / "pruned", root / "fused")
    return root
