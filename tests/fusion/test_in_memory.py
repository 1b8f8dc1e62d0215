"""Fusing in memory gives what the stage writes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY

from compress.artifact.store import load_model
from compress.fusion.fuse import fuse
from compress.fusion.in_memory import fuse_models
from compress.fusion.options import Fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("mlp", ["averaged", "grouped"])
def test_the_model_is_that_of_the_artifact(name: str, mlp: str, tmp_path: Path) -> None:
    case = CASES[name]()
    prune(case.model, tmp_path / "pruned", options=Prune(method="random", keep=2, branch_layer=1))
    fuse(tmp_path / "pruned", tmp_path / "fused", options=Fuse(mlp=mlp))
    written = load_model(tmp_path / "fused")
    made = fuse_models([load_model(tmp_path / "pruned" / f"member-{number}") for number in range(3)], mlp=mlp)
    assert made.config == written.config
    assert not made.training
    with torch.inference_mode():
        assert torch.equal(made.members(case.inputs), written.members(case.inputs))
