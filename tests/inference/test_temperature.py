from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.errors import DataError
from compress.inference.temperature import HIGHEST, LOWEST, fit_temperature


def drawn(logits: torch.Tensor, seed: int = 99) -> torch.Tensor:
    """Labels drawn from the mean of softmax(logits (M, N, K))."""
    mean = logits.softmax(-1).mean(0)
    return torch.multinomial(mean, 1, generator=torch.Generator().manual_seed(seed)).squeeze(1)


def noise(members: int, samples: int, seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(members, samples, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("true", [0.4, 1.0, 2.5])
def test_a_distorted_model_is_put_right(members: int, true: float) -> None:
    logits = noise(members, 20_000)
    assert fit_temperature(logits * true, drawn(logits)) == pytest.approx(true, rel=0.03)


def test_two_samples_by_hand() -> None:
    # One right, one wrong, both with logits (1, 0): the best probability is 1/2, so T is as high as allowed.
    logits = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    assert fit_temperature(logits, torch.tensor([0, 1])) == pytest.approx(HIGHEST)
    # Three of four right: sigmoid(1 / T) = 3 / 4.
    logits = torch.tensor([[[1.0, 0.0]] * 4])
    assert fit_temperature(logits, torch.tensor([0, 0, 0, 1])) == pytest.approx(1 / math.log(3), rel=1e-5)


def test_a_set_without_mistakes_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert fit_temperature(torch.tensor([[[3.0, 0.0]] * 9]), torch.zeros(9, dtype=torch.long)) == 1
    assert "no mistake on the 9 calibration samples" in caplog.text


def test_a_nearly_perfect_set_stays_bounded() -> None:
    logits = torch.tensor([[[0.01, 0.0]] * 999 + [[0.0, 0.001]]])
    assert fit_temperature(logits, torch.zeros(1000, dtype=torch.long)) == pytest.approx(LOWEST)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), members=st.integers(1, 4))
def test_no_other_temperature_is_better(seed: int, members: int) -> None:
    logits, labels = noise(members, 40, seed), drawn(noise(members, 40, seed + 1), seed + 2)

    def loss(temperature: float) -> float:
        mean = (logits / temperature).softmax(-1).mean(0)
        return float(torch.nn.functional.nll_loss(mean.log(), labels))

    found = fit_temperature(logits, labels)
    assert all(loss(found) <= loss(other) + 1e-9 for other in torch.logspace(-1.3, 1.3, 200).tolist())


def test_half_precision_logits_are_read_in_full() -> None:
    logits = torch.tensor([[[300.0, 0.0], [0.0, 300.0]]], dtype=torch.float16)
    assert LOWEST <= fit_temperature(logits, torch.tensor([0, 0])) <= HIGHEST


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="no sample"):
        fit_temperature(torch.zeros(1, 0, 3), torch.zeros(0, dtype=torch.long))
    with pytest.raises(DataError, match="not finite"):
        fit_temperature(torch.full((1, 2, 3), math.nan), torch.zeros(2, dtype=torch.long))
