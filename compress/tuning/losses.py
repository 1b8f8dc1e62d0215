"""The losses: of the task, of a teacher, of diversity, and those that other stages bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.transformer.combine import log_mean_probabilities
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs


@dataclass(frozen=True)
class StepOutputs:
    """What a loss may look at.

    Attributes:
        model: the model, its modules as this forward pass left them.
        inputs: b inputs.
        labels: ``(b,)``.
        member_logits: ``(M, b, K)`` float32.
        step: number of the optimizer step, from 0.
        steps: how many there will be.
    """

    model: Transformer
    inputs: Inputs
    labels: Tensor
    member_logits: Tensor
    step: int
    steps: int


class ExtraLoss(Protocol):
    """Losses of another stage (budgets, routers). The engine adds them and knows no more about them.

    ``model`` is the one that trains; an implementation keeps no other reference to it.

    Attributes:
        trains: kinds of modules that learn only under this loss, and are frozen in any other training.
    """

    trains: ClassVar[tuple[type[nn.Module], ...]] = ()

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        """Called before every forward pass, to set what follows a schedule.

        A training that goes on after an interruption calls it once more for the last step that was made, so that
        evaluations before the next step find the model as that step left it.
        """
        ...

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """Named terms, each with its coefficient: ``(b,)`` per input, or ``()`` for the whole batch."""
        ...

    def readings(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        """Named values for the log that are no part of the loss, of the same shapes; none unless overridden."""
        return {}

    def stepped(self, model: Transformer) -> None:
        """Called after every optimizer step, to move what has no gradient; nothing unless overridden.

        ``model`` is as the step's last forward pass left it, with new weights.
        """
        return


def cross_entropy(member_logits: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean of the members' cross-entropies, ``(b,)``, from logits ``(M, b, K)`` and labels ``(b,)``."""
    members = len(member_logits)
    losses = F.cross_entropy(
        member_logits.flatten(0, 1), labels.repeat(members), label_smoothing=smoothing, reduction="none"
    )
    return losses.view(members, -1).mean(0)


def distillation(member_logits: Tensor, teacher_logits: Tensor, temperature: float) -> Tensor:
    """``T² · KL(softmax(teacher / T) ‖ softmax(member / T))``, mean over members, ``(b,)``.

    Source: Hinton, Vinyals, Dean 2015 (arXiv 1503.02531), section 2; T² keeps the gradients' size.
    """
    target = (teacher_logits / temperature).log_softmax(-1)
    student = (member_logits / temperature).log_softmax(-1)
    return temperature**2 * (target.exp() * (target - student)).sum(-1).mean(0)


def mutual_information(member_logits: Tensor) -> Tensor:
    """``H(mean_m p_m) − mean_m H(p_m)`` in nats, ``(b,)``: 0 when members agree, at most log M.

    It is what an ensemble's members know that their mean does not: the Jensen-Shannon divergence of their predictions.
    """
    log_members = member_logits.log_softmax(-1)
    log_mean = log_mean_probabilities(log_members)
    entropy_of_mean = -(log_mean.exp() * log_mean).sum(-1)
    return entropy_of_mean + (log_members.exp() * log_members).sum(-1).mean(0)


def weighted_sum(term: Tensor, weights: Tensor) -> Tensor:
    """A term ``(b,)`` or ``()`` summed over a batch with the inputs' weights ``(b,)``."""
    return (term * weights).sum() if term.dim() else term * weights.sum()


def total(terms: Mapping[str, Tensor]) -> Tensor:
    """The sum of all terms."""
    return torch.stack(list(terms.values())).sum()
