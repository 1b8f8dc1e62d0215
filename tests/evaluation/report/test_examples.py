from __future__ import annotations

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from compress.data.sequence import SequenceDataset
from compress.evaluation.report.examples import LARGEST_EDGE, gather_examples, shown_image, shown_text


def test_least_and_most_certain_with_every_models_answer(fused_evaluation) -> None:
    found = gather_examples("fused", fused_evaluation.predictions, fused_evaluation.test)
    assert found is not None
    confidence = fused_evaluation.predictions["fused"].test.confidence
    order = confidence.argsort().tolist()
    assert [example.id for example in found.least_certain] == [str(index) for index in order[:10]]
    assert [example.id for example in found.most_certain] == [str(index) for index in order[::-1][:10]]
    first = found.least_certain[0]
    assert first.text == f"sentence {order[0]}"
    assert first.label == f"class {order[0] % 3}"
    assert [answer.model for answer in first.answers] == ["single", "fused"]
    assert first.answers[1].probability == pytest.approx(float(confidence[order[0]]))
    assert first.answers[1].right == (first.answers[1].predicted == first.label)


def test_few_inputs_are_shown_once(evaluation_of, logits_of, texts_of) -> None:
    evaluation = evaluation_of({"m": logits_of(1, 5, 3, 0)}, texts_of(5, 3))
    found = gather_examples("m", evaluation.predictions, evaluation.test)
    ids = [example.id for example in (*found.least_certain, *found.most_certain)]
    assert sorted(ids) == [str(number) for number in range(5)]


def test_without_the_data_there_are_no_examples(fused_evaluation) -> None:
    assert gather_examples("fused", fused_evaluation.predictions, None) is None


def test_images_are_embedded_as_they_are(evaluation_of, logits_of) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    images = [Image.fromarray(own) for own in pixels]
    data = SequenceDataset(images, "image", class_names=["a", "b"], labels=[0, 1, 0])
    evaluation = evaluation_of({"m": logits_of(1, 3, 2, 0)}, data)
    example = gather_examples("m", evaluation.predictions, data).least_certain[0]
    shown = Image.open(io.BytesIO(base64.b64decode(example.image)))
    assert (np.asarray(shown) == pixels[int(example.id)]).all()
    assert (example.width, example.height) == (8, 8)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F", "I;16", "HSV", "LAB"])
def test_every_colour_mode_becomes_a_png(mode: str) -> None:
    values = np.arange(64, dtype=np.uint8).reshape(8, 8) * 3
    image = Image.new(mode, (8, 8)) if mode == "LAB" else Image.fromarray(values).convert(mode)
    shown = shown_image(image)
    assert shown.mode in ("L", "RGB", "RGBA")
    shown.save(io.BytesIO(), format="PNG")


def test_sixteen_bit_images_are_stretched_and_large_ones_shrunk() -> None:
    dark = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) + 500)
    assert shown_image(dark).getextrema() == (0, 255)
    original = Image.new("RGB", (1000, 500))
    assert shown_image(original).size == (LARGEST_EDGE, LARGEST_EDGE // 2)
    assert original.size == (1000, 500)


def test_long_texts_are_cut() -> None:
    assert shown_text("a\n b\t c") == "a b c"
    cut = shown_text("word " * 100)
    assert len(cut) <= 280
    assert cut.endswith("…")


def test_ties_go_to_the_earlier_input(evaluation_of, texts_of) -> None:
    evaluation = evaluation_of({"m": torch.zeros(1, 30, 3)}, texts_of(30, 3))
    found = gather_examples("m", evaluation.predictions, evaluation.test)
    assert [example.id for example in found.least_certain] == [str(number) for number in range(10)]
