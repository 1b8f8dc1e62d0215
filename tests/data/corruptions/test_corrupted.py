from __future__ import annotations

import itertools

import numpy as np
import pytest
from PIL import Image

from compress.data.base import Dataset
from compress.data.batches import batches
from compress.data.corruptions.corrupted import corrupted
from compress.data.corruptions.registry import (
    CORRUPTIONS,
    IMAGE_CORRUPTIONS,
    SEVERITIES,
    TEXT_CORRUPTIONS,
    chosen_corruptions,
)
from compress.data.sequence import SequenceDataset
from compress.data.subset import take
from compress.errors import UsageError

SENTENCE = "The committee approved the annual budget yesterday, despite loud protests from several members. " * 3


def image(mode: str = "RGB", size: tuple[int, int] = (28, 28), seed: int = 0) -> Image.Image:
    """A smooth picture: noise would hide a blur."""
    rows, columns = np.mgrid[0 : size[1], 0 : size[0]]
    waves = [127 + 110 * np.sin(rows / (2 + channel) + seed) * np.cos(columns / 3) for channel in range(3)]
    return Image.fromarray(np.stack(waves, -1).astype(np.uint8)).convert(mode)


def images(mode: str = "RGB", size: tuple[int, int] = (28, 28), count: int = 6) -> Dataset:
    values = [image(mode, size, seed) for seed in range(count)]
    return SequenceDataset(values, "image", class_names=["a", "b"], labels=[0, 1] * (count // 2), reference="pictures")


def texts() -> Dataset:
    return SequenceDataset([SENTENCE, SENTENCE.upper(), "Grüße aus 東京"], "text", ids=["x", "y", "z"])


def values(dataset: Dataset) -> list[object]:
    found = [dataset[index].value for index in range(len(dataset))]
    return [value if isinstance(value, str) else (value.mode, value.size, value.tobytes()) for value in found]


@pytest.mark.parametrize("name", IMAGE_CORRUPTIONS)
@pytest.mark.parametrize("size", [(8, 8), (28, 28), (64, 48), (224, 224)])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_damage_grows_with_the_severity_at_every_size(name: str, size: tuple[int, int], mode: str) -> None:
    clean = image(mode, size)
    damage = []
    for severity in SEVERITIES:
        changed = CORRUPTIONS[name](clean, severity, np.random.default_rng(0))
        assert (changed.mode, changed.size) == (mode, size)
        damage.append(np.abs(np.asarray(changed, float) - np.asarray(clean, float)).mean())
    # Neighbouring JPEG qualities are close to each other.
    assert all(after > 0.95 * before for before, after in itertools.pairwise(damage))
    assert 0 < damage[0] < 0.8 * damage[-1]


@pytest.mark.parametrize("name", TEXT_CORRUPTIONS)
def test_texts_lose_more_at_higher_severities(name: str) -> None:
    changed = [CORRUPTIONS[name](SENTENCE, severity, np.random.default_rng(0)) for severity in SEVERITIES]
    words = set(SENTENCE.split())
    intact = [sum(word in words for word in text.split()) for text in changed]
    assert intact == sorted(intact, reverse=True)
    assert intact[-1] < intact[0]
    assert all(text.strip() for text in changed)


@pytest.mark.parametrize("name", (*IMAGE_CORRUPTIONS, *TEXT_CORRUPTIONS))
def test_a_sample_depends_on_its_id_and_the_seed_only(name: str) -> None:
    dataset = images() if name in IMAGE_CORRUPTIONS else texts()
    whole = values(corrupted(dataset, name, 4, seed=1))
    backwards = take(dataset, range(len(dataset) - 1, -1, -1))
    assert values(corrupted(backwards, name, 4, seed=1)) == whole[::-1]
    assert whole != values(dataset)
    if name in ("noise", "typos", "word_drop"):
        assert values(corrupted(dataset, name, 4, seed=2)) != whole


def test_batches_change_nothing() -> None:
    def preprocess(found: list[Image.Image]) -> list[bytes]:
        return [value.tobytes() for value in found]

    dataset = corrupted(images(), "noise", 2)
    alone = [value for batch in batches(dataset, preprocess, batch_size=1) for value in batch.inputs]
    shared = [value for batch in batches(dataset, preprocess, batch_size=4) for value in batch.inputs]
    assert alone == shared


def test_two_samples_get_different_noise() -> None:
    same = SequenceDataset([image(), image()], "image")
    first, second = values(corrupted(same, "noise", 3))
    assert first != second


def test_labels_ids_and_kind_stay() -> None:
    dataset = images()
    changed = corrupted(dataset, "blur", 3)
    assert (changed.kind, changed.class_names, changed.labels) == ("image", ("a", "b"), dataset.labels)
    assert [changed[index].id for index in range(6)] == [dataset[index].id for index in range(6)]
    assert changed.reference == "pictures (blur, severity 3)"


def test_every_choice_has_its_own_fingerprint() -> None:
    dataset = images()
    found = {dataset.fingerprint}
    found |= {corrupted(dataset, name, severity).fingerprint for name in IMAGE_CORRUPTIONS for severity in SEVERITIES}
    found |= {corrupted(dataset, "noise", 1, seed=9).fingerprint, corrupted(images("L"), "noise", 1).fingerprint}
    assert len(found) == 1 + 25 + 2
    assert corrupted(dataset, "noise", 1).fingerprint in found


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA", "CMYK"])
def test_other_colour_modes_are_corrupted_as_a_model_reads_them(mode: str) -> None:
    odd = image().convert(mode)
    for name in IMAGE_CORRUPTIONS:
        assert CORRUPTIONS[name](odd, 1, np.random.default_rng(0)).mode == ("L" if mode in ("1", "LA") else "RGB")


def test_a_single_pixel_is_corrupted_too() -> None:
    for name in IMAGE_CORRUPTIONS:
        assert CORRUPTIONS[name](image(size=(1, 1)), 5, np.random.default_rng(0)).size == (1, 1)


def test_brightness_keeps_the_hue_and_lifts_black() -> None:
    pixels = Image.fromarray(np.array([[[100, 50, 0], [0, 0, 0]]], dtype=np.uint8))
    coloured, black = np.asarray(CORRUPTIONS["brightness"](pixels, 5, np.random.default_rng(0)))[0]
    assert coloured.tolist() == [176, 88, 0]  # value 100 + 0.3 · 255, the others by the same factor
    assert black.tolist() == [76, 76, 76]


def test_contrast_keeps_the_mean() -> None:
    pixels = Image.fromarray(np.array([[0, 200]], dtype=np.uint8))
    assert np.asarray(CORRUPTIONS["contrast"](pixels, 5, np.random.default_rng(0))).tolist() == [[85, 115]]


def test_empty_and_short_texts_survive() -> None:
    for text in ("", " ", "a", "word", "東京"):
        assert CORRUPTIONS["word_drop"](text, 5, np.random.default_rng(0)) == text
        assert isinstance(CORRUPTIONS["typos"](text, 5, np.random.default_rng(0)), str)


def test_numbers_and_punctuation_are_not_mistyped() -> None:
    assert CORRUPTIONS["typos"]("12:30, 5.0 %!", 5, np.random.default_rng(0)) == "12:30, 5.0 %!"


def test_choosing() -> None:
    assert chosen_corruptions(["all"], "text") == TEXT_CORRUPTIONS
    assert chosen_corruptions(["jpeg", "all", "jpeg"], "image")[0] == "jpeg"
    assert len(chosen_corruptions(["jpeg", "all"], "image")) == 5
    with pytest.raises(UsageError, match="'typos' does not corrupt image data"):
        chosen_corruptions(["typos"], "image")
    with pytest.raises(UsageError, match="no severity 6"):
        corrupted(images(), "noise", 6)
    with pytest.raises(UsageError, match="'noise' does not corrupt text data"):
        corrupted(texts(), "noise", 1)
