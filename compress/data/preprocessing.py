"""What turns a raw sample into a model input, as stored in every artifact."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from compress.options import Options

Edge = Annotated[int, Field(ge=1, le=2**14)]
Deviation = Annotated[FiniteFloat, Field(gt=0.0)]


class ImagePreprocessing(Options):
    """Resize, crop, channel conversion and normalisation of an image."""

    kind: Literal["image"] = Field("image", description="Tells the kinds of preprocessing apart.")
    size: tuple[Edge, Edge] = Field(description="Height and width of the model's input, pixels.")
    channels: int = Field(ge=1, description="Channels of the model's input; 1 converts to grey, 3 to RGB.")
    mean: tuple[FiniteFloat, ...] = Field(description="Per-channel mean that is subtracted, on the scale 0..1.")
    std: tuple[Deviation, ...] = Field(description="Per-channel deviation that is divided by, on the scale 0..1.")
    resize: Literal["squash", "shortest", "longest"] = Field(
        "shortest", description="squash: ignore the aspect ratio; shortest: resize and crop the centre; longest: pad."
    )
    crop_fraction: float = Field(1.0, gt=0.0, le=1.0, description="Share of the resized image that the crop keeps.")
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = Field(
        "bicubic", description="How pixels are resampled, with antialiasing."
    )
    fill: float = Field(0.0, description="Grey value 0..1 of the padding of resize=longest.")


class TextPreprocessing(Options):
    """Tokenization of a text; the tokenizer's own files lie beside the weights."""

    kind: Literal["text"] = Field("text", description="Tells the kinds of preprocessing apart.")
    max_length: int = Field(ge=1, description="Longest input, tokens; longer texts are cut.")


Preprocessing = ImagePreprocessing | TextPreprocessing
