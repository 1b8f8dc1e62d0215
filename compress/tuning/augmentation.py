"""Random changes of training images: mirror, turn, scale and move, drawn for whole batches from a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from compress.data.preprocessing import ImagePreprocessing
from compress.tuning.batches import Share
from compress.tuning.options import Tune
from compress.tuning.seeds import generator


@dataclass(frozen=True)
class ImageAugmentation:
    """Changes preprocessed images; what moves in from outside is black.

    Attributes:
        flip: mirror half of the images, left to right.
        shift: largest move, pixels, along each axis.
        rotate: largest turn, degrees.
        zoom: largest relative change of size.
        seed: seed of all draws.
        black: the value of a black pixel per channel.
    """

    flip: bool
    shift: int
    rotate: float
    zoom: float
    seed: int
    black: tuple[float, ...]

    def __call__(self, images: Tensor, share: Share) -> Tensor:
        """Change the images ``(b, C, H, W)``, normalised, of one share; the same share gets the same changes."""
        draws = torch.rand(share.size, 5, generator=generator(self.seed, "augment", share.number))[share.rows]
        mirrored, *uniform = draws.unbind(1)
        angle, growth, down, right = (2 * value - 1 for value in uniform)
        if self.flip:
            images = torch.where((mirrored < 0.5)[:, None, None, None], images.flip(-1), images)
        black = torch.tensor(self.black).view(1, -1, 1, 1)
        if self.rotate or self.zoom:
            images = _turned(images - black, angle * math.radians(self.rotate), 1 + growth * self.zoom) + black
        if self.shift:
            pixels = torch.stack([down, right], 1) * (self.shift + 0.5)
            images = _moved(images - black, pixels.round().long().clamp(-self.shift, self.shift), self.shift) + black
        return images


def _turned(images: Tensor, angle: Tensor, scale: Tensor) -> Tensor:
    """Turn by ``angle (b,)`` radians and enlarge by ``scale (b,)`` about the centre, bilinear."""
    height, width = images.shape[-2:]
    cosine, sine, zero = torch.cos(angle) / scale, torch.sin(angle) / scale, torch.zeros_like(angle)
    # Coordinates run from -1 to 1 along both edges, so a turn of an image that is not square needs their ratio.
    rows = [
        torch.stack([cosine, -sine * height / width, zero], 1),
        torch.stack([sine * width / height, cosine, zero], 1),
    ]
    grid = F.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _moved(images: Tensor, pixels: Tensor, most: int) -> Tensor:
    """Move down and right by ``pixels (b, 2)``, each at most ``most``; zeros move in."""
    height, width = images.shape[-2:]
    padded = F.pad(images, [most] * 4)
    down = torch.arange(height) + most - pixels[:, :1]
    right = torch.arange(width) + most - pixels[:, 1:]
    batch = torch.arange(len(images))[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2).contiguous()


def image_augmentation(options: Tune, spec: ImagePreprocessing) -> ImageAugmentation | None:
    """The augmentation that the options ask for, or None."""
    if not (options.flip or options.shift or options.rotate or options.zoom):
        return None
    black = tuple(-mean / deviation for mean, deviation in zip(spec.mean, spec.std, strict=True))
    return ImageAugmentation(options.flip, options.shift, options.rotate, options.zoom, options.seed, black)
