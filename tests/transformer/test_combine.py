from __future__ import annotations

import torch

from compress.transformer.combine import log_mean_probabilities, tempered


def test_the_mean_is_of_probabilities_and_not_of_logits() -> None:
    probabilities = torch.tensor([[[0.9, 0.1]], [[0.3, 0.7]]], dtype=torch.float64)
    torch.testing.assert_close(log_mean_probabilities(probabilities.log()).exp(), probabilities.mean(0))


def test_one_member_is_its_own_mean_bit_for_bit() -> None:
    log_members = torch.tensor([[[-1e-20, -200.0, -torch.inf]]])
    assert torch.equal(log_mean_probabilities(log_members), log_members[0])


def test_a_temperature_keeps_the_number_format_and_1_every_bit() -> None:
    logits = torch.tensor([1.0, 3.0], dtype=torch.bfloat16)
    assert tempered(logits, 1.0) is logits
    assert tempered(logits, 2.0).dtype == torch.bfloat16
    assert tempered(logits, 2.0).tolist() == [0.5, 1.5]
