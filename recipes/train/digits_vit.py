"""Train the demo model, a small vision transformer, on the training split of scikit-learn's handwritten digits.

    python recipes/train/digits_vit.py digits-vit

writes the artifact that the package ships as ``builtin:digits-vit``. Takes about four minutes on one CPU core. On the
same machine and versions the same seed gives the same weights.

Whole heads are dropped at random in training (DropHead, Zhou et al. 2020, arXiv 2004.13342), so that no prediction
hangs on a single head and heads can be pruned afterwards without tuning, as layers can in Fan et al. 2020
(arXiv 1909.11556). The defaults give a test accuracy of 98.8 %.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from compress.artifact.provenance import Provenance
from compress.artifact.store import save_model
from compress.backbones.base import assemble
from compress.backbones.timm_vit import take_apart
from compress.data.builtin import digits
from compress.data.preprocessing import ImagePreprocessing
from compress.progress import progress
from compress.transformer.config import BackboneConfig

ARCHITECTURE: dict[str, Any] = {
    "img_size": 8,
    "patch_size": 2,
    "in_chans": 1,
    "num_classes": 10,
    "embed_dim": 96,
    "depth": 6,
    "num_heads": 12,
    "mlp_ratio": 2.0,
}
# Mean and deviation of the training pixels, on the scale 0..1.
MEAN, STD = 0.305, 0.376
BATCH_SIZE = 32
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.05
AVERAGING_DECAY = 0.99


class HeadDropout(nn.Module):
    """Zero the contexts of random heads of random samples while training; the identity otherwise.

    With probability ``rate`` a sample keeps only k of its H heads, k uniform on ``fewest..H`` and the heads uniform.
    The kept heads are not scaled up, because a pruned model does not scale them up either.

    Args:
        heads: H, heads of the layer.
        rate: share of the samples that lose heads.
        fewest: smallest number of heads that a sample keeps.
    """

    def __init__(self, heads: int, rate: float = 0.8, fewest: int = 4) -> None:
        super().__init__()
        self.heads, self.rate, self.fewest = heads, rate, fewest

    def forward(self, contexts: Tensor) -> Tensor:
        """From contexts ``(B, N, H * D)``, the heads side by side, to the same with some heads zero."""
        if not self.training:
            return contexts
        batch = len(contexts)
        count = torch.randint(self.fewest, self.heads + 1, (batch, 1))
        count = count.where(torch.rand(batch, 1) < self.rate, self.heads)
        rank = torch.rand(batch, self.heads).argsort(dim=1).argsort(dim=1)
        kept = (rank < count).to(contexts.dtype)
        return (contexts.unflatten(2, (self.heads, -1)) * kept[:, None, :, None]).flatten(2)


def pixels_and_labels(split: str) -> tuple[Tensor, Tensor]:
    """Images ``(n, 1, 8, 8)`` on the scale 0..1 and classes ``(n,)`` of a split of the digits."""
    dataset = digits(split)
    samples = [dataset[index] for index in range(len(dataset))]
    pixels = torch.from_numpy(np.stack([np.asarray(sample.value) for sample in samples]))
    return pixels[:, None].float() / 255, torch.tensor([sample.label for sample in samples])


def normalise(pixels: Tensor) -> Tensor:
    """From the scale 0..1 to the model's input."""
    return (pixels - MEAN) / STD


def distort(pixels: Tensor) -> Tensor:
    """Rotate by at most 12 degrees, scale and shear by 10 %, shift by one pixel, and add noise; ``(B, 1, 8, 8)``."""

    def uniform(bound: float) -> Tensor:
        return (torch.rand(len(pixels)) * 2 - 1) * bound

    angle, scale = uniform(math.radians(12)), uniform(0.1).exp()
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    # The grid runs from -1 to 1 over 8 pixels, so that one pixel is 0.25.
    rows = [torch.stack([cosine, uniform(0.1) - sine, uniform(0.25)], 1), torch.stack([sine, cosine, uniform(0.25)], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(pixels.shape), align_corners=False)
    moved = F.grid_sample(pixels, grid, align_corners=False)
    return (moved + 0.05 * torch.randn_like(moved)).clamp(0, 1)


def build() -> VisionTransformer:
    """A fresh model with head dropout in every layer."""
    model = VisionTransformer(**ARCHITECTURE, weight_init="jax")
    # As large as the embedding of a 2x2 patch. With timm's 0.02 the patches, most of them blank, are almost
    # exchangeable, and training takes several times as long.
    nn.init.trunc_normal_(model.pos_embed, std=0.5)
    for block in model.blocks:
        # timm's place for a norm of the contexts, before the output projection; without parameters either way.
        block.attn.norm = HeadDropout(block.attn.num_heads)
    return model


def train(epochs: int) -> nn.Module:
    """Train a fresh model and return the moving average of its weights, in evaluation mode."""
    pixels, labels = pixels_and_labels("train")
    model = build()
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, betas=(0.9, 0.99))
    steps = epochs * math.ceil(len(pixels) / BATCH_SIZE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(AVERAGING_DECAY))
    for _ in progress(range(epochs), "train", unit="epoch"):
        for rows in torch.randperm(len(pixels)).split(BATCH_SIZE):
            loss = F.cross_entropy(model(normalise(distort(pixels[rows]))), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            average.update_parameters(model)
    return average.module.eval()


@torch.inference_mode()
def accuracy(model: nn.Module, split: str) -> float:
    """Share of a split's images that the model names right."""
    pixels, labels = pixels_and_labels(split)
    return (model(normalise(pixels)).argmax(1) == labels).float().mean().item()


def as_artifact(model: nn.Module, out: Path, epochs: int, seed: int) -> None:
    """Write the trained model as an artifact that ``compress`` opens; ``builtin:digits-vit`` is one."""
    preprocessing = ImagePreprocessing(
        size=(ARCHITECTURE["img_size"],) * 2, channels=1, mean=(MEAN,), std=(STD,), resize="squash"
    )
    backbone = BackboneConfig(adapter="timm", architecture="vit_tiny_patch16_224", arguments=ARCHITECTURE)
    plain = VisionTransformer(**ARCHITECTURE)
    plain.load_state_dict(model.state_dict())
    provenance = Provenance(
        stage="train",
        options={"script": "recipes/train/digits_vit.py", "epochs": epochs, "seed": seed},
        data_fingerprint=digits("train").fingerprint,
    )
    save_model(assemble(take_apart(plain), backbone, digits("train").class_names, preprocessing), out, provenance)


@click.command(help="Train the demo model and write it to the folder OUT.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--epochs", default=70, show_default=True, help="Passes over the 1,097 training images.")
@click.option("--seed", default=0, show_default=True, help="Seed of the weights, the order and the distortions.")
def main(out: Path, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    # Sums in another order give other weights; with one thread the order does not depend on the machine's cores.
    torch.set_num_threads(1)
    model = train(epochs)
    as_artifact(model, out, epochs, seed)
    for split in ("train", "calibration", "test"):
        click.echo(f"{split:12} accuracy {accuracy(model, split):.4f}")
    click.echo(f"{sum(p.numel() for p in model.parameters()):,} parameters in {out}")


if __name__ == "__main__":
    main()
