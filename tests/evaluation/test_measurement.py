from __future__ import annotations

import pytest
import torch

from compress.evaluation.measurement import measure
from compress.evaluation.metrics.registry import catalogue
from compress.evaluation.predictions import ColumnCollector, Predictions


def noise(rows: int, seed: int, members: int = 3) -> torch.Tensor:
    return torch.randn(members, rows, 6, generator=torch.Generator().manual_seed(seed))


def test_everything_has_a_value_or_a_reason(columns_of) -> None:
    labels = torch.arange(30) % 6
    full = Predictions(
        columns_of(noise(30, 0), labels), {"svhn": columns_of(noise(12, 1))}, [[(0,), (1,), (0, 1)]], branch_layer=0
    )
    metrics = catalogue(["svhn"])
    measured = measure(full, metrics.values())
    assert list(measured) == [name for name in metrics if not name.startswith(("cost/", "budget/", "route/"))]
    assert [name for name, found in measured.items() if found.value is None] == []
    default, named = measured["ood/svhn/auroc"], measured["ood/svhn/entropy/auroc"]
    assert default.value is not None
    assert default != named


def test_an_empty_out_of_distribution_set_has_no_value(columns_of) -> None:
    predictions = Predictions(columns_of(noise(6, 0), torch.arange(6)), {"none": ColumnCollector().finish()})
    measured = measure(predictions, catalogue(["none"]).values())
    assert measured["ood/none/auroc"].value is None
    assert measured["ood/none/auroc"].reason == "out-of-distribution set none: the set is empty"
    assert measured["cls/accuracy"].value is not None


def test_an_empty_test_set_has_no_value(columns_of) -> None:
    measured = measure(
        Predictions(ColumnCollector().finish(), {"o": columns_of(noise(5, 0))}), catalogue(["o"]).values()
    )
    assert {found.value for found in measured.values()} == {None}
    assert measured["ood/o/fpr95"].reason == measured["cls/nll"].reason == "the set is empty"


def test_without_labels_only_what_needs_them_is_missing(columns_of) -> None:
    measured = measure(Predictions(columns_of(noise(9, 0)), {"o": columns_of(noise(5, 1))}), catalogue(["o"]).values())
    missing = {name.split("/")[0] for name, found in measured.items() if found.reason == "the set has no labels"}
    assert missing == {"cls", "cal", "sc"}
    assert measured["div/kl"].value is not None
    assert measured["ood/o/energy/auroc"].value is not None


def test_a_single_member_has_no_mutual_information(columns_of) -> None:
    predictions = Predictions(columns_of(noise(9, 0, 1)), {"o": columns_of(noise(5, 1, 1))})
    measured = measure(predictions, catalogue(["o"]).values())
    assert measured["ood/o/mutual_information/auroc"].reason == "needs at least two members"
    assert measured["ood/o/entropy/auroc"].value is not None


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_never_give_a_number(columns_of, bad) -> None:
    logits = noise(9, 0)
    logits[0, 4, 2] = bad
    measured = measure(Predictions(columns_of(logits, torch.zeros(9).long())), catalogue().values())
    assert {found.value for found in measured.values()} == {None}
    assert "1 of 9 inputs are not finite (first: sample-4)" in str(measured["cal/ece"].reason)


def test_an_infinite_value_is_no_number(columns_of) -> None:
    columns = columns_of(torch.tensor([[1.0, 0.0]]).log(), torch.tensor([1]))
    found = measure(Predictions(columns), catalogue().values())["cls/nll"]
    assert found.value is None
    assert "infinite" in str(found.reason)


def test_perfect_detection_and_its_inverse(columns_of) -> None:
    sure, unsure = torch.tensor([9.0, 0.0]).expand(8, 2), torch.zeros(5, 2)
    right = measure(Predictions(columns_of(sure), {"o": columns_of(unsure)}), catalogue(["o"]).values())
    wrong = measure(Predictions(columns_of(unsure), {"o": columns_of(sure)}), catalogue(["o"]).values())
    for score in ("", "entropy/", "energy/", "max_logit/"):
        assert (right[f"ood/o/{score}auroc"].value, right[f"ood/o/{score}fpr95"].value) == (1, 0), score
        assert (wrong[f"ood/o/{score}auroc"].value, wrong[f"ood/o/{score}fpr95"].value) == (0, 1), score
