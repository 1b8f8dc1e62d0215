from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve
from torch import Tensor

from compress.evaluation.metrics.detection import detect
from compress.evaluation.metrics.ood_aupr_in import ood_aupr_in
from compress.evaluation.metrics.ood_aupr_out import ood_aupr_out
from compress.evaluation.metrics.ood_auroc import ood_auroc
from compress.evaluation.metrics.ood_fpr95 import ood_fpr95
from compress.evaluation.metrics.ood_scores import energy, entropy, max_logit, max_probability, mutual_information
from compress.evaluation.ties import CELLS

METRICS = [ood_auroc, ood_aupr_in, ood_aupr_out, ood_fpr95]


def scores(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_hand_computed() -> None:
    detection = detect(scores([0.1, 0.2, 0.6]), scores([0.5, 0.9]))
    assert float(ood_auroc(detection)) == pytest.approx(5 / 6)
    assert float(ood_aupr_out(detection)) == pytest.approx((1 + 2 / 3) / 2)
    assert float(ood_aupr_in(detection)) == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert float(ood_fpr95(detection)) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("inside", "outside"), [(50, 50), (1000, 100), (3, 400)])
def test_all_tied(inside, outside) -> None:
    detection = detect(torch.zeros(inside).double(), torch.zeros(outside).double())
    assert float(ood_auroc(detection)) == 0.5
    assert float(ood_fpr95(detection)) == 1
    assert float(ood_aupr_out(detection)) == pytest.approx(outside / (inside + outside))
    assert float(ood_aupr_in(detection)) == pytest.approx(inside / (inside + outside))


def test_fpr95_takes_the_first_threshold_that_reaches_95_percent() -> None:
    """20 positives: 19 of 20 are exactly 95 %, which is enough."""
    outside = scores([float(row) for row in range(20)])
    assert float(ood_fpr95(detect(scores([0.5, 5.5]), outside))) == 0.5
    assert float(ood_fpr95(detect(scores([1.0, 0.5]), outside))) == 0.5  # tied with the 19th: flagged together


@settings(max_examples=60, deadline=None)
@given(
    inside=st.lists(st.integers(-4, 4), min_size=1, max_size=60),
    outside=st.lists(st.integers(-2, 6), min_size=1, max_size=60),
)
def test_agreement_with_scikit_learn_under_ties(inside, outside) -> None:
    values = [float(value) for value in inside + outside]
    labels = [0] * len(inside) + [1] * len(outside)
    detection = detect(scores(values[: len(inside)]), scores(values[len(inside) :]))
    assert float(ood_auroc(detection)) == pytest.approx(roc_auc_score(labels, values), abs=1e-12)
    assert float(ood_aupr_out(detection)) == pytest.approx(average_precision_score(labels, values), abs=1e-12)
    swapped = average_precision_score([1 - label for label in labels], [-value for value in values])
    assert float(ood_aupr_in(detection)) == pytest.approx(swapped, abs=1e-12)
    fpr, tpr, _ = roc_curve(labels, values, drop_intermediate=False)
    reached = [rate for rate, hit in zip(fpr, tpr, strict=True) if hit >= 0.95 - 1e-12]
    assert float(ood_fpr95(detection)) == pytest.approx(reached[0], abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), ratio=st.sampled_from([1, 10]), step=st.sampled_from([0.0, 0.5]))
def test_inverted_scores_mirror_the_area(seed, ratio, step) -> None:
    generator = torch.Generator().manual_seed(seed)
    inside, outside = (
        torch.randn(30 * ratio, generator=generator).double(),
        torch.randn(30, generator=generator).double() + 1,
    )
    if step:
        inside, outside = (inside / step).round(), (outside / step).round()
    detection, inverted = detect(inside, outside), detect(-inside, -outside)
    assert float(ood_auroc(inverted)) == pytest.approx(1 - float(ood_auroc(detection)), abs=1e-12)
    exchanged = detect(-outside, -inside)
    assert float(ood_aupr_in(detection)) == pytest.approx(float(ood_aupr_out(exchanged)), abs=1e-12)


def test_unbounded_scores_are_not_squashed_into_ties() -> None:
    """Through a sigmoid 50 and 60 would both be 1."""
    assert float(ood_auroc(detect(scores([50.0]), scores([60.0])))) == 1
    assert float(ood_auroc(detect(scores([60.0]), scores([50.0])))) == 0


def test_a_monotone_change_of_the_score_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(100, generator=generator).double(), torch.randn(60, generator=generator).double()
    for metric in METRICS:
        assert float(metric(detect(inside, outside))) == float(metric(detect(inside.exp(), outside.exp())))


@pytest.mark.parametrize("metric", METRICS)
def test_integer_weights_equal_repeated_samples(metric) -> None:
    generator = torch.Generator().manual_seed(2)
    values = torch.randint(12, (50,), generator=generator).double()
    counts = torch.randint(3, (4, 50), generator=generator)
    weighted = metric(detect(values[:30], values[30:]), counts.double())
    for row in range(4):
        rows = torch.repeat_interleave(torch.arange(50), counts[row])
        inside, outside = values[rows[rows < 30]], values[rows[rows >= 30]]
        assert float(weighted[row]) == pytest.approx(float(metric(detect(inside, outside))), abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_joining_neighbouring_scores_under_weights_costs_no_precision(metric) -> None:
    generator = torch.Generator().manual_seed(2)
    inside, outside = (
        torch.randn(3 * CELLS, generator=generator).double(),
        torch.randn(CELLS, generator=generator).double() + 1,
    )
    detection = detect(inside, outside)
    ones = torch.ones(1, 4 * CELLS, dtype=torch.float64)
    assert float(metric(detection, ones)[0]) == pytest.approx(float(metric(detection)), abs=5e-4)


def test_scores_are_high_for_unsure_predictions(columns_of) -> None:
    sure, unsure = torch.tensor([8.0, 0.0, 0.0]), torch.tensor([0.5, 0.4, 0.0])
    members = torch.stack([torch.stack([sure, unsure]), torch.stack([sure, unsure.flip(0)])])
    columns = columns_of(members)
    for score in (max_probability, entropy, mutual_information, energy, max_logit):
        certain, doubtful = score(columns).tolist()
        assert certain < doubtful, score.__name__
