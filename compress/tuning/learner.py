"""What the training loop knows of the thing that it trains."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from compress.runtime import Runtime
from compress.tuning.batches import MakeInputs, TrainingBatch
from compress.tuning.validation import Score, Validation


class Learner(ABC):
    """Something with weights and losses.

    Attributes:
        weights: the module whose state is the result.
        objective: the module whose forward pass gives the losses; it contains ``weights``, so that what wraps it for
            several processes sees the whole graph.
    """

    weights: nn.Module
    objective: nn.Module

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """An optimizer of the trainable weights."""

    @abstractmethod
    def make_inputs(self) -> MakeInputs:
        """What makes inputs of samples."""

    @abstractmethod
    def losses(self, objective: nn.Module, batch: TrainingBatch, step: int, steps: int) -> dict[str, Tensor]:
        """The losses of a batch by name, each a sum weighted with ``batch.weights``; ``loss`` is the one to lower.

        Args:
            objective: the wrapped objective.
            batch: on the CPU.
            step, steps: where training stands.
        """

    @abstractmethod
    def set_training(self) -> None:
        """Training mode for what is trained, evaluation mode for what is frozen."""

    def prepare(self, step: int, steps: int) -> None:  # noqa: B027 - most have no schedule
        """Set what follows a schedule as it is in a step: a training that goes on has only its weights back."""

    def stepped(self) -> None:  # noqa: B027
        """An optimizer step was made."""

    @abstractmethod
    def evaluate(self, validation: Validation, runtime: Runtime) -> Score:
        """Measure the weights as they are; leaves evaluation mode behind."""
