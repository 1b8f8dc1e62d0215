"""Label cells, and the order of the model's labels."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.data.label_cells import encode_labels, sorted_class_names
from compress.data.labels import align_labels, check_labels
from compress.data.sequence import SequenceDataset
from compress.errors import DataError


def encode(*cells: object) -> tuple[tuple[str, ...] | None, list[int] | None]:
    return encode_labels(cells, [str(row) for row in range(1, len(cells) + 1)], "t.csv#train")


def dataset_of(*cells: object) -> SequenceDataset:
    class_names, labels = encode(*cells)
    ids = [str(row) for row in range(1, len(cells) + 1)]
    return SequenceDataset(
        ["text"] * len(cells), "text", class_names=class_names, labels=labels, reference="t.csv#train", ids=ids
    )


@pytest.mark.parametrize(
    ("cells", "names", "labels"),
    [
        (("pos", "neg", "pos"), ("neg", "pos"), [1, 0, 1]),
        (("10", "9", "-1"), ("-1", "9", "10"), [2, 1, 0]),
        ((10, 9, 9), ("9", "10"), [1, 0, 0]),
        ((1.0, 0.0), ("0", "1"), [1, 0]),
        (("1.0", "2"), ("1", "2"), [0, 1]),
        ((True, False), ("false", "true"), [1, 0]),
        ((" pos ", "neg"), ("neg", "pos"), [1, 0]),
        (("été", "夏"), ("été", "夏"), [0, 1]),
        (("007", "1.5e", "inf"), ("007", "1.5e", "inf"), [0, 1, 2]),
    ],
)
def test_cells_become_classes(cells: tuple[object, ...], names: tuple[str, ...], labels: list[int]) -> None:
    assert encode(*cells) == (names, labels)


def test_no_label_at_all_is_unlabelled() -> None:
    assert encode(None, "", "  ", math.nan) == (None, None)
    assert encode() == (None, None)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (("pos", ""), "t.csv#train, row 2: the label is missing, though other rows have one"),
        ((1, 0.5), "t.csv#train, row 2: the label 0.5 is a fraction"),
        (("0", "1", "1.6"), "t.csv#train, row 3: the label 1.6 is a fraction"),
        ((["a"],), "t.csv#train, row 1: the label is a list"),
    ],
)
def test_cells_that_are_no_classes_are_named(cells: tuple[object, ...], message: str) -> None:
    with pytest.raises(DataError) as caught:
        encode(*cells)
    assert str(caught.value).startswith(message)


def test_class_names_sort_as_numbers_only_when_all_are_numbers() -> None:
    assert sorted_class_names(["10", "2", "2"]) == ("2", "10")
    assert sorted_class_names(["10", "2", "x"]) == ("10", "2", "x")


@given(st.permutations(["cat", "dog", "eel", "fox"]), st.lists(st.sampled_from(["cat", "eel", "fox"]), min_size=1))
def test_aligned_labels_name_the_same_class(order: list[str], cells: list[str]) -> None:
    aligned = align_labels(dataset_of(*cells), tuple(order))
    assert aligned.class_names == tuple(order)
    assert [order[label] for label in aligned.labels or ()] == cells
    assert [aligned[row].label for row in range(len(aligned))] == aligned.labels


def test_alignment_keeps_the_fingerprint() -> None:
    data = dataset_of("a", "b")
    assert align_labels(data, ("b", "a")).fingerprint == data.fingerprint


def test_integers_are_positions_when_the_model_names_its_labels_otherwise() -> None:
    assert align_labels(dataset_of(1, 0, 1), ("negative", "positive")).labels == [1, 0, 1]
    assert align_labels(dataset_of("2", "2"), ("a", "b", "c")).labels == [2, 2]


def test_integers_are_names_when_the_model_has_these_names() -> None:
    assert align_labels(dataset_of(1, 3), ("3", "1")).labels == [1, 0]
    assert align_labels(dataset_of(-1, 1), ("-1", "0", "1")).labels == [0, 2]


@pytest.mark.parametrize(
    ("cells", "labels", "bad"),
    [
        ((0, 1, -1), ("neg", "pos"), "-1"),
        ((0, 2, 1), ("neg", "pos"), "2"),
        ((0, 1, -100), ("0", "1"), "-100"),
        (("neg", "neutral", "pos"), ("neg", "pos"), "neutral"),
        ((0, "pos"), ("neg", "pos"), "0"),
        (("Neg",), ("neg", "pos"), "Neg"),
    ],
)
def test_a_label_outside_the_model_is_named(cells: tuple[object, ...], labels: tuple[str, ...], bad: str) -> None:
    with pytest.raises(DataError) as caught:
        align_labels(dataset_of(*cells), labels)
    row = [str(cell) for cell in cells].index(bad) + 1
    assert str(caught.value).startswith(f"t.csv#train, row {row}: label {bad!r} is none of the model's")


def test_two_model_labels_of_one_name_matter_only_when_used() -> None:
    labels = ("crane", "owl", "crane")
    assert align_labels(dataset_of("owl"), labels).labels == [1]
    with pytest.raises(DataError, match="label 'crane' is the name of several of the model's 3 labels"):
        align_labels(dataset_of("owl", "crane"), labels)


def test_unlabelled_data_cannot_be_aligned() -> None:
    with pytest.raises(DataError, match="unlabelled"):
        align_labels(dataset_of("", ""), ("a",))


@pytest.mark.parametrize("label", [-1, 2, -100])
def test_class_numbers_outside_the_classes_are_named(label: int) -> None:
    data = SequenceDataset(["a", "b"], "text", class_names=["x", "y"], labels=[0, label], reference="mine#train")
    for check in (check_labels, lambda dataset: align_labels(dataset, ("x", "y"))):
        with pytest.raises(DataError, match=f"mine#train, row 1: label {label} is outside 0..1"):
            check(data)
