"""Which samples make which forward pass: a function of the seed, so that a run can go on anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from compress.tuning.seeds import generator


@dataclass(frozen=True)
class Order:
    """The order of the training data.

    Forward passes are numbered from 0 over all epochs. A step is ``accumulate`` of them; the last step of an epoch has
    what is left, so that every epoch sees every sample once.

    Attributes:
        samples: N.
        batch_size: samples of one forward pass, of all processes together.
        accumulate: forward passes of one optimizer step.
        seed: seed of the permutations.
    """

    samples: int
    batch_size: int
    accumulate: int
    seed: int

    @property
    def passes_per_epoch(self) -> int:
        return -(-self.samples // self.batch_size)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.passes_per_epoch // self.accumulate)

    def first_pass(self, step: int) -> int:
        """The number of the forward pass with which a step begins."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch * self.passes_per_epoch + within * self.accumulate

    def passes(self, step: int) -> int:
        """How many forward passes a step has."""
        return self.first_pass(step + 1) - self.first_pass(step)

    def samples_before(self, step: int) -> int:
        """Samples that the steps before this one have seen."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch * self.samples + min(self.samples, within * self.accumulate * self.batch_size)

    def indices(self, number: int) -> list[int]:
        """The samples of forward pass ``number``."""
        epoch, within = divmod(number, self.passes_per_epoch)
        start = within * self.batch_size
        return _permutation(self.samples, self.seed, epoch)[start : start + self.batch_size].tolist()

    def samples_of_step(self, number: int) -> int:
        """Samples of the whole step that forward pass ``number`` belongs to."""
        within = number % self.passes_per_epoch // self.accumulate
        step = self.accumulate * self.batch_size
        return min(self.samples, (within + 1) * step) - within * step


@lru_cache(maxsize=2)
def _permutation(samples: int, seed: int, epoch: int) -> torch.Tensor:
    return torch.randperm(samples, generator=generator(seed, "order", epoch))
