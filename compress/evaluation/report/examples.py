"""The test inputs that a model is most and least certain about."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping

import numpy as np
import torch
from PIL import Image
from pydantic import Field, FiniteFloat

from compress.data.base import Dataset
from compress.evaluation.predictions import Predictions
from compress.options import Options

EXPLANATION = (
    "The test inputs that {model} is least and most certain about, with {whose} and its probability: mistakes belong "
    "among the doubtful ones, and a confident mistake deserves a look at its label."
)
SHOWN = 10
LONGEST_TEXT = 280
LARGEST_EDGE = 112
"""Pixels; larger images are shrunk, smaller ones stay as they are and are enlarged by the page."""


class Answer(Options):
    """What one model says about an input."""

    model: str
    predicted: str
    probability: FiniteFloat
    right: bool | None = Field(None, description="Null for unlabelled data.")


class Example(Options):
    """One test input."""

    id: str
    label: str | None
    text: str | None = Field(None, description="The sentence, cut when it is long.")
    image: str | None = Field(None, description="A PNG in base64.")
    width: int | None = None
    height: int | None = None
    answers: tuple[Answer, ...] = Field(description="In the order of the call.")


class Examples(Options):
    """The extremes of one model's confidence."""

    model: str
    least_certain: tuple[Example, ...] = Field(description="The least certain first.")
    most_certain: tuple[Example, ...] = Field(description="The most certain first.")


def gather_examples(model: str, predictions: Mapping[str, Predictions], test: Dataset | None) -> Examples | None:
    """Read the extremes from the test set; ties go to the earlier input. None when there is no set, or an empty one.

    An input is shown once: with fewer than twenty inputs, the less certain half is called least certain.
    """
    confidence = predictions[model].test.confidence
    order = torch.argsort(confidence, stable=True).tolist()
    if test is None or not order:
        return None
    number = min(SHOWN, -(-len(order) // 2))
    least = order[:number]
    descending = torch.argsort(confidence, stable=True, descending=True).tolist()
    most = [index for index in descending[:SHOWN] if index not in least]

    def example(index: int) -> Example:
        return _example(index, predictions, test)

    return Examples(
        model=model,
        least_certain=tuple(example(index) for index in least),
        most_certain=tuple(example(index) for index in most),
    )


def _example(index: int, predictions: Mapping[str, Predictions], test: Dataset) -> Example:
    sample = test[index]
    classes = test.class_names or ()

    def class_name(number: int) -> str:
        return classes[number] if 0 <= number < len(classes) else str(number)

    answers = []
    for name, predicted in predictions.items():
        columns = predicted.test
        answers.append(
            Answer(
                model=name,
                predicted=class_name(int(columns.predicted[index])),
                probability=float(columns.confidence[index]),
                right=None if columns.correct is None else bool(columns.correct[index]),
            )
        )
    label = None if sample.label is None else class_name(sample.label)
    if isinstance(sample.value, str):
        return Example(id=sample.id, label=label, text=shown_text(sample.value), answers=tuple(answers))
    thumbnail = shown_image(sample.value)
    return Example(
        id=sample.id,
        label=label,
        image=base64.b64encode(_png(thumbnail)).decode(),
        width=thumbnail.width,
        height=thumbnail.height,
        answers=tuple(answers),
    )


def shown_text(text: str) -> str:
    """A text on one line, at most 280 characters."""
    words = " ".join(text.split())
    return words if len(words) <= LONGEST_TEXT else f"{words[: LONGEST_TEXT - 1].rstrip()}…"


def shown_image(image: Image.Image) -> Image.Image:
    """The image as 8-bit grey, colour or colour with transparency, at most 112 pixels wide and high."""
    if image.mode in ("I", "F", "I;16", "I;16B", "I;16L"):
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        low, high = float(values.min()), float(values.max())
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).round().astype(np.uint8))
    elif image.mode not in ("L", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.mode in ("P", "LA", "PA") else "L" if image.mode == "1" else "RGB")
    if max(image.size) > LARGEST_EDGE:
        image = image.copy()
        image.thumbnail((LARGEST_EDGE, LARGEST_EDGE), Image.Resampling.LANCZOS)
    return image


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
