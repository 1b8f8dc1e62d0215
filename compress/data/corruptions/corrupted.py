"""A data set with one corruption at one severity."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property

import numpy as np

from compress.data.base import Dataset, Kind, Sample
from compress.data.corruptions.registry import CORRUPTIONS, SEVERITIES, chosen_corruptions
from compress.errors import UsageError

# Part of the fingerprint: raised whenever a corruption gives other values than before.
VERSION = 1


class CorruptedDataset:
    """The samples of ``dataset``, corrupted when they are read; see ``corrupted``."""

    def __init__(self, dataset: Dataset, corruption: str, severity: int, seed: int) -> None:
        self._dataset, self._corruption, self._severity, self._seed = dataset, corruption, severity, seed
        self._corrupt = CORRUPTIONS[corruption]
        self.reference: str = f"{dataset.reference} ({corruption}, severity {severity})"
        self.kind: Kind = dataset.kind
        self.class_names = dataset.class_names
        self.labels = dataset.labels

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Sample:
        sample = self._dataset[index]
        # The severity is left out: at every severity the same numbers are drawn.
        name = json.dumps([self._seed, self._corruption, sample.id])
        entropy = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")
        value = self._corrupt(sample.value, self._severity, np.random.default_rng(entropy))
        return Sample(value, sample.label, sample.id)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the fingerprint of the data and of what is done to them."""
        content = [self._dataset.fingerprint, self._corruption, self._severity, self._seed, VERSION]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def corrupted(dataset: Dataset, corruption: str, severity: int, seed: int = 0) -> Dataset:
    """The data set with every sample corrupted, as under a distribution shift.

    What happens to a sample depends on its id, the corruption and the seed; not on its place in the set, the batch or
    the number of workers. Labels and ids stay.

    Args:
        dataset: images or texts.
        corruption: a name in ``compress.data.corruptions.registry``.
        severity: 1 (mild) to 5.
        seed: another seed, other noise.

    Raises:
        UsageError: an unknown corruption, one for the other kind of data, or another severity.

    Source: Hendrycks and Dietterich, ICLR 2019 (arXiv 1903.12261), for images.
    """
    chosen_corruptions((corruption,), dataset.kind)
    if severity not in SEVERITIES:
        raise UsageError(f"there is no severity {severity}", where=corruption, fix="choose 1 to 5")
    return CorruptedDataset(dataset, corruption, severity, seed)
