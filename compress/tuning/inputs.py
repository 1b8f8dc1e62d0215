"""From samples to inputs, in the data workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from compress.backbones.base import Preprocessor
from compress.data.base import Sample
from compress.tuning.batches import Share
from compress.tuning.seeds import generator


@dataclass(frozen=True)
class PreparedInputs:
    """Preprocesses values, and changes images at random if asked to."""

    preprocess: Preprocessor
    augment: Callable[[Tensor, Share], Tensor] | None = None

    def __call__(self, samples: list[Sample], share: Share) -> Any:
        inputs = self.preprocess([sample.value for sample in samples])
        return inputs if self.augment is None else self.augment(inputs, share)  # type: ignore[arg-type]


@dataclass(frozen=True)
class CaptionedInputs:
    """Images ``(b, C, H, W)`` and the tokens of their captions ``(b, N)``.

    Attributes:
        images: makes the images.
        tokenize: makes tokens of texts.
        class_names: names of the classes.
        templates: captions with {} for the class; each image draws one.
        seed: seed of the draws.
    """

    images: PreparedInputs
    tokenize: Callable[[list[str]], Tensor]
    class_names: tuple[str, ...]
    templates: tuple[str, ...]
    seed: int

    def __call__(self, samples: list[Sample], share: Share) -> tuple[Tensor, Tensor]:
        source = generator(self.seed, "caption", share.number)
        drawn = torch.randint(len(self.templates), (share.size,), generator=source)[share.rows]
        captions = [
            self.templates[template].format(self.class_names[sample.label or 0])
            for template, sample in zip(drawn.tolist(), samples, strict=True)
        ]
        return self.images(samples, share), self.tokenize(captions)
