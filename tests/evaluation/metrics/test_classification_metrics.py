from __future__ import annotations

import math

import pytest
import torch

from compress.evaluation.metrics.accuracy import accuracy
from compress.evaluation.metrics.brier import brier
from compress.evaluation.metrics.nll import nll
from compress.evaluation.metrics.top5_accuracy import top5_accuracy
from compress.evaluation.unavailable import UnavailableMetricError


def test_hand_computed(columns_of) -> None:
    probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]], dtype=torch.float64)
    columns = columns_of(probabilities.log(), torch.tensor([0, 0, 1]))
    assert float(accuracy(columns)) == pytest.approx(1 / 3)  # the tie goes to class 0
    assert float(nll(columns)) == pytest.approx(-(math.log(0.8) + math.log(0.3) + math.log(0.5)) / 3)
    assert float(brier(columns)) == pytest.approx((2 * 0.04 + 2 * 0.49 + 2 * 0.25) / 3)


def test_probabilities_are_averaged_and_not_logits(columns_of) -> None:
    members = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=torch.float64).log()
    columns = columns_of(members, torch.tensor([1]))
    assert float(nll(columns)) == pytest.approx(-math.log(0.45))
    assert float(brier(columns)) == pytest.approx(2 * 0.55**2)


def test_top5(columns_of) -> None:
    logits = torch.arange(8.0).expand(8, 8)
    assert float(top5_accuracy(columns_of(logits, torch.arange(8)))) == 5 / 8
    with pytest.raises(UnavailableMetricError, match="more than five classes, there are 5"):
        top5_accuracy(columns_of(torch.zeros(2, 5), torch.tensor([0, 1])))


@pytest.mark.parametrize("metric", [accuracy, nll, brier, top5_accuracy])
def test_integer_weights_equal_repeated_samples(columns_of, metric) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(2, 20, 7, generator=generator), torch.randint(7, (20,), generator=generator)
    counts = torch.randint(4, (3, 20), generator=generator)
    weighted = metric(columns_of(logits, labels), counts.double())
    for row in range(3):
        rows = torch.repeat_interleave(torch.arange(20), counts[row])
        assert float(weighted[row]) == pytest.approx(
            float(metric(columns_of(logits[:, rows], labels[rows]))), abs=1e-12
        )
