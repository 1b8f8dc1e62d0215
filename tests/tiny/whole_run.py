"""A whole run of real stages in a fraction of a second: prune, fuse, tune and eval of a tiny vision transformer.

Imported by ``disturb_runs.py``, which forks before each run, and by tests that need one artifact of every kind.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

from compress.artifact.folder import verify_folder
from compress.errors import ArtifactError
from compress.recipe.read import read_recipe
from compress.recipe.run import run_recipe

STAGES = ("01-prune", "02-fuse", "03-tune", "04-eval")
SIZES = {"img_size": 8, "patch_size": 4, "in_chans": 1, "embed_dim": 12, "depth": 2, "num_heads": 3}
TEXT = f"""\
model:
  adapter: timm
  name: vit_tiny_patch16_224
  weights: vit.safetensors
  labels: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
  arguments: {json.dumps(SIZES)}
  preprocessing: {{mean: [0.5], std: [0.5]}}
data:
  train: ./images#train[:24]
  validation: ./images#train[24:32]
  calibration: ./images#train[32:]
  test: ./images#test
runtime: {{device: cpu}}
stages:
  - prune: {{members: 2, keep: 2, branch_layer: 1, max_overlap: 0.4}}
  - fuse
  - tune: {{epochs: 1, batch_size: 8, checkpoint_steps: 2, log_steps: 1}}
  - eval: {{compare: [members], latency: false, intervals: false}}
"""


def write_recipe(folder: Path) -> Path:
    """Put a model of random weights, random images and the recipe into ``folder``; returns the recipe's path."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, **SIZES)
    save_file(model.state_dict(), folder / "vit.safetensors")
    (folder / "images").mkdir()
    chance = random.Random(0)
    for split, samples in (("train", 48), ("t10k", 16)):
        labels = bytes(number % 10 for number in range(samples))
        for kind, shape, content in (
            ("images-idx3", (samples, 8, 8), chance.randbytes(64 * samples)),
            ("labels-idx1", (samples,), labels),
        ):
            header = bytes([0, 0, 8, len(shape)]) + b"".join(edge.to_bytes(4, "big") for edge in shape)
            (folder / "images" / f"{split}-{kind}-ubyte").write_bytes(header + content)
    path = folder / "recipe.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(recipe: Path, out: Path) -> None:
    """Run the recipe, or continue a run that was disturbed."""
    run_recipe(read_recipe(recipe), out)


def digests(out: Path) -> dict[str, str]:
    """The hash of every stage's artifact under ``out``, or what is wrong with it; absent ones are left out."""
    found = {}
    for name in STAGES:
        if (out / name).exists():
            try:
                found[name] = verify_folder(out / name).digest
            except ArtifactError as error:
                found[name] = f"broken: {error}"
    return found
