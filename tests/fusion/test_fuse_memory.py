"""Eight members are fused one tensor at a time: the whole result is never in memory, not even for the self-check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Anonymous memory only: pages of mapped files are the system's to drop.
MEASURE = """
import json, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from timm.models.vision_transformer import VisionTransformer
from tiny.timm_cases import vit_case
from compress.fusion.fuse import fuse
from compress.fusion.options import Fuse
from compress.pruning.options import Prune
from compress.pruning.prune import prune

def anonymous_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], anonymous_bytes())
        time.sleep(0.002)

def save(name, members, width):
    model = vit_case(VisionTransformer, embed_dim=width, depth=4, mlp_ratio=4.0).model
    prune(model, folder / name, options=Prune(method="random", members=members, keep=2))

folder = Path(sys.argv[2])
save("few", 2, 48)
fuse(folder / "few", folder / "warm-up")
save("pruned", 8, 256)
done, peak, before = threading.Event(), [0], anonymous_bytes()
watcher = threading.Thread(target=watch)
watcher.start()
result = fuse(folder / "pruned", folder / "fused", options=Fuse(mlp="grouped"))
done.set()
watcher.join()
written = (folder / "fused" / "model.safetensors").stat().st_size
print(json.dumps({"exact": result.exact, "grown": peak[0] - before, "written": written}))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's count of anonymous memory")
def test_eight_members_are_streamed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURE, str(Path(__file__).parents[1]), str(tmp_path)]
    # Freed tensors go back to the system at once; glibc's own moving threshold keeps some of them, by chance.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20), "MALLOC_ARENA_MAX": "1"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    measured = json.loads(found.stdout)
    assert measured["exact"], "the self-check ran"
    assert measured["written"] > 60e6
    assert measured["grown"] < 0.5 * measured["written"], measured
