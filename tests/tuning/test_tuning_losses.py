"""The losses, against hand-computed values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from compress.transformer.model import Transformer
from compress.tuning.losses import ExtraLoss, StepOutputs, cross_entropy, distillation, mutual_information
from compress.tuning.objective import Objective
from compress.tuning.options import Tune

LOGITS = torch.tensor([[[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [3.0, -3.0, 0.0]]])
LABELS = torch.tensor([0, 2])


def test_cross_entropy_is_the_mean_of_the_members() -> None:
    by_hand = [sum(float(-LOGITS[m, i].log_softmax(0)[LABELS[i]]) for m in range(2)) / 2 for i in range(2)]
    assert cross_entropy(LOGITS, LABELS).tolist() == pytest.approx(by_hand)


def test_label_smoothing_is_torch_s() -> None:
    expected = F.cross_entropy(LOGITS[0], LABELS, label_smoothing=0.2, reduction="none")
    assert torch.allclose(cross_entropy(LOGITS[:1], LABELS, 0.2), expected)


def test_distillation_is_zero_for_the_teacher_itself_and_positive_else() -> None:
    assert distillation(LOGITS[:1], LOGITS[0] + 5, 2.0).abs().max() < 1e-6
    by_hand = 4 * F.kl_div((LOGITS[0] / 2).log_softmax(-1), (LOGITS[1] / 2).softmax(-1), reduction="none").sum(-1)
    assert torch.allclose(distillation(LOGITS[:1], LOGITS[1], 2.0), by_hand, atol=1e-6)


def test_mutual_information_between_zero_and_log_members() -> None:
    assert mutual_information(LOGITS[:1].expand(3, -1, -1)).abs().max() < 1e-6
    opposite = torch.tensor([[[50.0, 0.0]], [[0.0, 50.0]]])
    assert mutual_information(opposite).tolist() == pytest.approx([math.log(2)])


def test_a_certain_prediction_has_finite_gradients() -> None:
    logits = (LOGITS * 1000).requires_grad_()
    (mutual_information(logits).sum() + distillation(logits, LOGITS[0] * 1000, 1.0).sum()).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


class Penalty(ExtraLoss):
    """Half the squared logits per input, and a constant for the batch; remembers what it was told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []

    def prepare(self, model: Transformer, step: int, steps: int) -> None:
        self.steps.append((step, steps))

    def terms(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        return {"size": outputs.member_logits.square().sum((0, 2)) / 2, "constant": torch.tensor(3.0)}

    def readings(self, outputs: StepOutputs) -> Mapping[str, Tensor]:
        return {"largest": outputs.member_logits[0].amax(1)}


def test_terms_of_other_stages_are_weighted_and_added(model: Transformer) -> None:
    penalty = Penalty()
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels, weights = torch.tensor([0, 1, 2, 3]), torch.tensor([0.25, 0.25, 0.5, 0.0])
    found = Objective(model, Tune(), [penalty])(images, labels, weights, step=2, steps=7)
    logits = model.members(images)[0]
    task = (F.cross_entropy(logits, labels, reduction="none") * weights).sum()
    size = (logits.square().sum(1) / 2 * weights).sum()
    assert penalty.steps == [(2, 7)]
    assert torch.allclose(found["task"], task)
    assert torch.allclose(found["size"], size)
    assert float(found["constant"]) == pytest.approx(3)
    # A reading: shown, and not in the loss.
    assert torch.allclose(found["largest"], (logits.amax(1) * weights).sum())
    assert torch.allclose(found["loss"], task + size + 3)
    assert found["loss"].requires_grad
    assert not found["size"].requires_grad


@pytest.mark.parametrize(("share", "names"), [(0.0, {"task"}), (0.3, {"task", "teacher"}), (1.0, {"teacher"})])
def test_the_share_of_the_teacher(model: Transformer, share: float, names: set[str]) -> None:
    images, labels = torch.randn(2, 1, 8, 8), torch.tensor([0, 1])
    weights = torch.full((2,), 0.5)
    found = Objective(model, Tune(distill=share))(images, labels, weights, teacher_logits=torch.randn(2, 10))
    assert found.keys() - {"loss"} == names
