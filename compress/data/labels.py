"""The labels of a data set: checked, and renumbered to the order of a model's logits."""

from __future__ import annotations

from compress.data.base import Dataset, Kind, Sample
from compress.data.label_cells import INTEGER
from compress.errors import DataError


class AlignedDataset:
    """A data set with other class numbers; see ``align_labels``. The data, and so the fingerprint, are the same."""

    def __init__(self, dataset: Dataset, class_names: tuple[str, ...], labels: list[int]) -> None:
        self._dataset = dataset
        self.reference: str = dataset.reference
        self.kind: Kind = dataset.kind
        self.class_names = class_names
        self.labels = labels

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        sample = self._dataset[index]
        return Sample(sample.value, self.labels[index], sample.id)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the data as they are stored."""
        return self._dataset.fingerprint


def align_labels(dataset: Dataset, labels: tuple[str, ...]) -> Dataset:
    """Number the classes of ``dataset`` as a model does.

    A class is found by its name among ``labels``. When none of the names is there and all are integers, as in a
    table with the labels 0 and 1 for a model with the labels negative and positive, they are the positions in
    ``labels``. Classes without a sample do not matter.

    Args:
        dataset: labelled data.
        labels: names of the model's classes, in the order of its logits.

    Raises:
        DataError: the data are unlabelled, or a sample's class is none of the model's, or one of two of the same name;
            the message names the data with their split, the value and the row.
    """
    if dataset.class_names is None or dataset.labels is None:
        raise DataError(
            "the data are unlabelled", where=dataset.reference, fix="use labelled data, or name --label-column"
        )
    check_labels(dataset)
    if dataset.class_names == labels:
        return dataset
    used = set(dataset.labels)
    position = _positions(dataset.class_names, used, labels)
    for row, label in enumerate(dataset.labels):
        if label not in position:
            raise _misfit(dataset, row, dataset.class_names[label], labels)
    return AlignedDataset(dataset, labels, [position[label] for label in dataset.labels])


def check_labels(dataset: Dataset) -> None:
    """Raise ``DataError`` naming data, value and row when a label is no position in ``dataset.class_names``."""
    classes = len(dataset.class_names or ())
    for row, label in enumerate(dataset.labels or ()):
        if not 0 <= label < classes:
            raise DataError(
                f"label {label} is outside 0..{classes - 1}",
                where=f"{dataset.reference}, row {dataset[row].id}",
                fix="correct the label, or leave the sample out",
            )


def _positions(names: tuple[str, ...], used: set[int], labels: tuple[str, ...]) -> dict[int, int]:
    """For every used class that has exactly one place among ``labels``, that place."""
    if all(names[label] not in labels and INTEGER.fullmatch(names[label]) for label in used):
        return {label: int(names[label]) for label in used if 0 <= int(names[label]) < len(labels)}
    return {label: labels.index(names[label]) for label in used if labels.count(names[label]) == 1}


def _misfit(dataset: Dataset, row: int, name: str, labels: tuple[str, ...]) -> DataError:
    shown = ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
    what = "is the name of several of" if name in labels else "is none of"
    return DataError(
        f"label {name!r} {what} the model's {len(labels)} labels ({shown})",
        where=f"{dataset.reference}, row {dataset[row].id}",
        fix="correct the row, or open the model with the labels that the data use: --label once for each class",
    )
