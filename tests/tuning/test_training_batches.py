"""Batches are the same with any number of workers, and together the same with any number of processes."""

from __future__ import annotations

import pytest
import torch

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.sequence import SequenceDataset
from compress.distributed import Processes
from compress.errors import DataError
from compress.transformer.model import Transformer
from compress.tuning.augmentation import image_augmentation
from compress.tuning.batches import TrainingBatch, TrainingBatches
from compress.tuning.inputs import PreparedInputs
from compress.tuning.options import Tune
from compress.tuning.order import Order


def make(
    model: Transformer, data: Dataset, *, batch_size: int = 16, team: Processes | None = None, augment: bool = True
) -> TrainingBatches:
    order = Order(len(data), batch_size, 2, seed=0)
    chosen = image_augmentation(Tune(shift=2, rotate=20, flip=True), model.config.preprocessing)  # type: ignore[arg-type]
    inputs = PreparedInputs(preprocessor(model), chosen if augment else None)
    return TrainingBatches(data, inputs, order, team or Processes())


def joined(parts: list[TrainingBatch]) -> tuple[torch.Tensor, list[str]]:
    real = [part for part in parts if float(part.weights.sum()) > 0]
    return torch.cat([part.inputs for part in real]), [name for part in real for name in part.ids]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing(model: Transformer, data: Dataset, workers: int) -> None:
    alone = list(make(model, data).between(1, 7, workers=0, pin=False))
    helped = list(make(model, data).between(1, 7, workers=workers, pin=False))
    assert [batch.share.number for batch in helped] == list(range(1, 7))
    for one, other in zip(alone, helped, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert one.ids == other.ids
        assert torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("batch_size", [5, 1, 61])
def test_processes_share_every_pass_without_loss_or_repetition(
    model: Transformer, data: Dataset, batch_size: int
) -> None:
    whole = make(model, data, batch_size=batch_size)
    parts = [make(model, data, batch_size=batch_size, team=Processes(index, 2)) for index in range(2)]
    for number in range(-(-len(data) // batch_size)):
        single, shares = whole[number], [part[number] for part in parts]
        assert isinstance(single, TrainingBatch)
        inputs, ids = joined(shares)  # type: ignore[arg-type]
        assert torch.equal(inputs, single.inputs)
        assert ids == list(single.ids)
        assert sum(float(share.weights.sum()) for share in shares) == pytest.approx(float(single.weights.sum()))  # type: ignore[union-attr]


def test_a_process_without_a_sample_takes_part_with_weight_zero(model: Transformer, data: Dataset) -> None:
    share = make(model, data, batch_size=1, team=Processes(0, 2))[0]
    assert isinstance(share, TrainingBatch)
    assert share.weights.tolist() == [0.0]
    assert len(share.inputs) == 1


def test_the_weights_of_a_step_sum_to_one(model: Transformer, data: Dataset) -> None:
    batches = make(model, data)  # passes of 16, 16, 16 and 13, two of them a step
    first, last = [batches[number] for number in (0, 1)], [batches[number] for number in (2, 3)]
    for step in (first, last):
        assert sum(float(batch.weights.sum()) for batch in step) == pytest.approx(1)  # type: ignore[union-attr]


def test_the_global_random_state_is_not_touched(model: Transformer, data: Dataset) -> None:
    before = torch.get_rng_state()
    list(make(model, data).between(0, 2, workers=0, pin=False))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("label", [-1, 10, -100])
def test_a_label_that_is_no_class_is_an_error_before_the_first_batch(
    model: Transformer, data: Dataset, label: int
) -> None:
    values = [data[index].value for index in range(3)]
    broken = SequenceDataset(
        values, "image", class_names=[str(digit) for digit in range(10)], labels=[1, 2, label], reference="d#train"
    )
    with pytest.raises(DataError, match=rf"d#train, row 2: label {label} is outside 0\.\.9"):
        make(model, broken)


def test_no_samples_is_an_error(model: Transformer) -> None:
    empty = SequenceDataset([], "image", class_names=["a"], labels=[], reference="nothing")
    with pytest.raises(DataError, match="nothing: there are no samples"):
        make(model, empty)


def test_an_unreadable_sample_is_an_error_when_it_is_due(model: Transformer, data: Dataset) -> None:
    class Broken(SequenceDataset):
        def __getitem__(self, index: int):  # type: ignore[no-untyped-def]
            raise DataError("is damaged", where=f"row {index}", fix="replace it")

    values = [data[index].value for index in range(4)]
    broken = Broken(values, "image", class_names=[str(digit) for digit in range(10)], labels=[0, 1, 2, 3])
    for workers in (0, 2):
        with pytest.raises(DataError, match="is damaged"):
            list(make(model, broken).between(0, 1, workers=workers, pin=False))
