"""Two towers trained together: images and their captions meet, others part.

A caption is a template with the name of the image's class. Images of one class share their captions, so a batch has
several right answers per row; the targets are spread evenly over them.
Source: Radford et al. 2021 (arXiv 2103.00020), section 2; several right answers: Yang et al. 2022 (arXiv 2204.03610).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.backbones.base import TowerPair
from compress.data.images import image_preprocessor
from compress.runtime import Runtime
from compress.tuning.augmentation import image_augmentation
from compress.tuning.batches import TrainingBatch
from compress.tuning.inputs import CaptionedInputs, PreparedInputs
from compress.tuning.learner import Learner
from compress.tuning.optimizer import build_optimizer
from compress.tuning.options import Tune
from compress.tuning.validation import Score, Validation


def contrastive_loss(images: Tensor, texts: Tensor, scale: Tensor, labels: Tensor) -> Tensor:
    """The mean of image-to-text and text-to-image cross-entropy, ``(B,)``.

    Args:
        images, texts: unit vectors ``(B, E)``.
        scale: factor of their products.
        labels: ``(B,)``; a text is right for every image of the same label.
    """
    products = scale * images.float() @ texts.float().T
    right = (labels[:, None] == labels[None, :]).float()
    targets = right / right.sum(1, keepdim=True)
    to_text = F.cross_entropy(products, targets, reduction="none")
    return (to_text + F.cross_entropy(products.T, targets, reduction="none")) / 2


class ContrastiveObjective(nn.Module):
    """A pair and its loss as one module."""

    def __init__(self, pair: TowerPair) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, images: Tensor, tokens: Tensor, labels: Tensor, weights: Tensor) -> dict[str, Tensor]:
        """``loss``, summed with the inputs' weights ``(b,)``."""
        image_features, text_features, scale = self.pair(images, tokens)
        return {"loss": (contrastive_loss(image_features, text_features, scale, labels) * weights).sum()}


class ContrastiveLearner(Learner):
    """See ``Learner``; it is measured as the zero-shot classifier of its image tower.

    Args:
        pair: what is trained.
        options: see ``Tune``.
        device: where it is.
        class_names: of the data, in the order of their labels.
        templates: captions with {} for the class; also the prompts of the zero-shot classifier.
    """

    def __init__(
        self,
        pair: TowerPair,
        options: Tune,
        device: torch.device,
        *,
        class_names: tuple[str, ...],
        templates: tuple[str, ...],
    ) -> None:
        self.weights = self.pair = pair
        self.objective = ContrastiveObjective(pair)
        self.options, self.device = options, device
        self.class_names, self.templates = class_names, templates

    def optimizer(self) -> torch.optim.Optimizer:
        """AdamW."""
        return build_optimizer(self.pair, self.options)

    def make_inputs(self) -> CaptionedInputs:
        """Images, and a caption of each."""
        spec = self.pair.preprocessing
        images = PreparedInputs(image_preprocessor(spec), image_augmentation(self.options, spec))
        tokenize = self.pair.tokenizer()
        return CaptionedInputs(images, tokenize, self.class_names, self.templates, self.options.seed)

    def losses(self, objective: nn.Module, batch: TrainingBatch, step: int, steps: int) -> dict[str, Tensor]:
        """See ``contrastive_loss``."""
        images, tokens = (part.to(self.device) for part in batch.inputs)
        return objective(images, tokens, batch.labels.to(self.device), batch.weights.to(self.device))

    def set_training(self) -> None:
        """Both towers train."""
        self.pair.train()

    def evaluate(self, validation: Validation, runtime: Runtime) -> Score:
        """Measure zero-shot classification."""
        classifier = self.pair.eval().classifier(self.class_names, self.templates)
        return validation.measure(classifier.to(self.device), runtime)
