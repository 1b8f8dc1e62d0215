from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp

from compress.errors import DataError
from compress.evaluation.metrics.nll import nll
from compress.evaluation.predictions import ColumnCollector
from compress.evaluation.unavailable import UnavailableMetricError

COLUMNS = [
    *("confidence", "nll", "brier", "entropy", "mutual_information", "energy", "max_logit", "kl"),
    *("predicted", "correct", "top5_correct", "member_predicted"),
]


def numpy_columns(logits: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The definitions, written out in float64 numpy."""
    members, samples, _ = logits.shape
    log_members = log_softmax(logits, axis=-1)
    probabilities = np.exp(log_members)
    mean = probabilities.mean(0)
    rows = np.arange(samples)
    one_hot = np.eye(logits.shape[2])[labels]
    entropy = -(mean * np.log(mean)).sum(-1)
    kl = np.zeros(samples)
    for first in range(members):
        for second in range(members):
            ratio = log_members[first] - log_members[second]
            kl += (probabilities[first] * ratio).sum(-1) / (members * (members - 1))
    return {
        "predicted": mean.argmax(-1),
        "confidence": mean.max(-1),
        "correct": mean.argmax(-1) == labels,
        "top5_correct": (np.argsort(-mean, axis=-1)[:, :5] == labels[:, None]).any(-1),
        "nll": -np.log(mean[rows, labels]),
        "brier": ((mean - one_hot) ** 2).sum(-1),
        "entropy": entropy,
        "mutual_information": entropy + (probabilities * log_members).sum(-1).mean(0),
        "energy": -logsumexp(logits, axis=-1).mean(0),
        "max_logit": logits.max(-1).mean(0),
        "kl": kl,
        "member_predicted": logits.argmax(-1),
    }


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    members=st.integers(2, 4),
    classes=st.integers(6, 12),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_columns_equal_their_definitions(columns_of, seed, members, classes, scale) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(members, 37, classes)) * scale
    labels = generator.integers(classes, size=37)
    found = columns_of(torch.from_numpy(logits), torch.from_numpy(labels), batch=10)
    for name, expected in numpy_columns(logits, labels).items():
        np.testing.assert_allclose(getattr(found, name).numpy(), expected, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_columns_do_not_depend_on_batches_and_low_precision_is_only_rounded_once(columns_of, dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 50, 7, generator=generator).to(dtype)
    labels = torch.randint(7, (50,), generator=generator)
    one, many, wide = (
        columns_of(logits, labels),
        columns_of(logits, labels, batch=3),
        columns_of(logits.double(), labels),
    )
    for name in (*COLUMNS, "class_bin_gaps"):
        assert torch.equal(getattr(one, name), getattr(many, name)), name
        assert torch.equal(getattr(one, name), getattr(wide, name)), name


def test_large_sets_are_reduced_in_pieces_with_the_same_result(columns_of, monkeypatch) -> None:
    generator = torch.Generator().manual_seed(1)
    logits, labels = torch.randn(2, 40, 6, generator=generator), torch.randint(6, (40,), generator=generator)
    whole = columns_of(logits, labels, batch=40)
    monkeypatch.setattr("compress.evaluation.predictions.LOGITS_PER_REDUCTION", 60)
    pieces = columns_of(logits, labels, batch=17)
    for name in (*COLUMNS, "class_bin_gaps", "labels"):
        # Vectors of another length are summed in another order on some processors.
        torch.testing.assert_close(getattr(whole, name), getattr(pieces, name), atol=1e-12, rtol=1e-12, msg=name)


def test_extreme_logits_stay_finite(columns_of) -> None:
    columns = columns_of(torch.tensor([[200.0, 0.0], [0.0, 1e4]]), torch.tensor([1, 1]))
    assert columns.nll.tolist() == [200.0, 0.0]
    assert columns.brier.tolist() == pytest.approx([2.0, 0.0])
    assert columns.confidence.tolist() == [1.0, 1.0]
    assert columns.entropy.tolist() == pytest.approx([0.0, 0.0], abs=1e-80)


def test_probabilities_of_exactly_zero_and_one(columns_of) -> None:
    probabilities = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    columns = columns_of(probabilities.log().expand(2, -1, -1), torch.tensor([0, 2]))
    assert columns.confidence.tolist() == pytest.approx([1.0, 0.5])
    assert columns.entropy.tolist() == pytest.approx([0.0, np.log(2)])
    assert columns.nll.tolist() == pytest.approx([0.0, np.log(2)])
    assert columns.kl.tolist() == columns.mutual_information.tolist() == [0.0, 0.0]
    assert columns.non_finite == ()


def test_probability_is_never_above_one(columns_of) -> None:
    columns = columns_of(torch.tensor([50.0, 0.0]).expand(7, 3, 2), torch.zeros(3, dtype=torch.long))
    assert (columns.confidence <= 1).all()
    assert (columns.nll >= 0).all()


def test_saturated_confidences_still_rank(columns_of) -> None:
    """In float32, softmax([20, 0]) and softmax([25, 0]) are both exactly 1."""
    columns = columns_of(torch.tensor([[20.0, 0.0], [25.0, 0.0]]))
    assert columns.confidence[0] < columns.confidence[1]


def test_top5_ties_go_to_the_lower_class(columns_of) -> None:
    columns = columns_of(torch.zeros(2, 8), torch.tensor([4, 5]))
    assert columns.top5_correct.tolist() == [True, False]


def test_without_labels_or_members_columns_are_absent(columns_of) -> None:
    columns = columns_of(torch.randn(4, 3))
    assert columns.labels is columns.correct is columns.nll is columns.brier is columns.class_bin_gaps is None
    assert columns.mutual_information is columns.kl is None
    with pytest.raises(UnavailableMetricError, match="no labels"):
        columns.labelled(columns.nll)
    with pytest.raises(UnavailableMetricError, match="two members"):
        columns.between_members(columns.kl)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_logits_are_named_and_make_metrics_unavailable(columns_of, bad) -> None:
    logits = torch.zeros(2, 5, 3)
    logits[1, 3, 0] = bad
    columns = columns_of(logits, torch.zeros(5, dtype=torch.long), ids=["a", "b", "c", "d.png", "e"])
    assert columns.non_finite == ("d.png",)
    with pytest.raises(UnavailableMetricError, match=r"1 of 5 inputs are not finite \(first: d.png\)"):
        nll(columns)


def test_empty_set() -> None:
    columns = ColumnCollector().finish()
    assert len(columns) == 0
    with pytest.raises(UnavailableMetricError, match="the set is empty"):
        nll(columns)


@pytest.mark.parametrize("label", [-1, 3, -100])
def test_a_label_outside_the_classes_names_the_sample(columns_of, label) -> None:
    labels = torch.tensor([0, 1, 2, label])
    with pytest.raises(DataError, match=rf"img-3: label {label} is outside 0\.\.2"):
        columns_of(torch.zeros(4, 3), labels, ids=[f"img-{row}" for row in range(4)])


def test_batches_must_fit_each_other() -> None:
    collector = ColumnCollector()
    collector.add(torch.zeros(2, 3, 4), None, ["a", "b", "c"])
    for logits, labels, ids in [
        (torch.zeros(3, 4), None, ["a"] * 3),
        (torch.zeros(1, 3, 4), None, ["a"] * 3),
        (torch.zeros(2, 3, 5), None, ["a"] * 3),
        (torch.zeros(2, 3, 4), torch.zeros(3, dtype=torch.long), ["a"] * 3),
        (torch.zeros(2, 3, 4), None, ["a"] * 2),
    ]:
        with pytest.raises(ValueError, match=r"member_logits|rows of logits|members, classes"):
            collector.add(logits, labels, ids)


def test_a_reused_output_buffer_is_copied() -> None:
    collector, buffer = ColumnCollector(), torch.tensor([[[3.0, 0.0]]])
    collector.add(buffer, None, ["first"])
    buffer.copy_(torch.tensor([[[0.0, 3.0]]]))
    collector.add(buffer, None, ["second"])
    assert collector.finish().predicted.tolist() == [0, 1]
