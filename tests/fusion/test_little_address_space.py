"""Artifacts load and fuse in little address space: no copy is held beside the mapped files.

safetensors maps a file twice while it opens it, once in Rust and once in torch, so addresses for two files are needed,
though memory for none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
from timm.models.vision_transformer import VisionTransformer
from tiny.timm_cases import vit_case
from compress.artifact.store import load_model
from compress.fusion.fuse import fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune

def save(name, width):
    model = vit_case(VisionTransformer, embed_dim=width, depth=4, mlp_ratio=4.0).model
    prune(model, folder / name, options=Prune(method="random", members=3, keep=2))

def bytes_of(name):
    return sum(path.stat().st_size for path in (folder / name).rglob("*.safetensors"))

def grant(size):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))

folder = Path(sys.argv[2])
save("few", 48)
fuse(folder / "few", folder / "few fused")  # everything that is imported late is there
with torch.inference_mode():
    load_model(folder / "few fused").members(load_model(folder / "few fused").stem.probe())
save("pruned", 768)
share = float(sys.argv[3])
# Three members of which a fourth of the heads is left, and a result with one MLP and three attentions per layer.
grant(int(share * 1.4 * bytes_of("pruned")))
fuse(folder / "pruned", folder / "fused")
assert bytes_of("fused") > 0.4 * bytes_of("pruned")
grant(int((share + 0.6) * bytes_of("fused")))
model = load_model(folder / "fused")
with torch.inference_mode():
    assert model.members(model.stem.probe()).isfinite().all()
print("done")
"""


def run(folder: Path, granted: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WORK, str(Path(__file__).parents[1]), str(folder), granted]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit on address space")
def test_addresses_for_two_mappings_are_enough(tmp_path: Path) -> None:
    found = run(tmp_path, "2.0")
    assert found.returncode == 0, found.stderr[-2000:]
    assert found.stdout.endswith("done\n")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's limit on address space")
def test_the_limit_bites(tmp_path: Path) -> None:
    assert run(tmp_path, "0.1").returncode != 0
