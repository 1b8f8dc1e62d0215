"""Options of ``bench``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compress.options import Options
from compress.pruning.options import Keep
from compress.runtime import DType
from compress.transformer.config import StreamMlp

Count = Annotated[int, Field(ge=1)]
Layer = Annotated[int, Field(ge=0)]


class Bench(Options):
    """What is compared, and how it is measured."""

    members: int = Field(3, ge=1, description="M of the variants that are derived from a single model.")
    keep: Keep = Field(4, description="Heads their layers keep: a count (4) or a fraction (0.33).")
    trunk_keep: Keep | None = Field(None, description="Heads kept per layer below the branch layer (default: as keep).")
    branch_layer: tuple[Layer, ...] = Field(
        (), description="First layers with M streams, a fused model each (default: 0, half and three quarters)."
    )
    mlp: StreamMlp = Field(
        "averaged", description="Whether the streams of a fused model share one MLP per layer or each has its own."
    )
    separate: bool = Field(True, description="Measure the Deep Ensemble and the separate pruned models too.")
    budget: float | None = Field(
        None, gt=0, le=1, description="Measure single and fused models at this budget too: the share of heads that run."
    )
    capacity: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Measure single and fused models with routers too: share of tokens that pass every second block.",
    )
    batch: tuple[Count, ...] = Field((1, 8), min_length=1, description="Inputs per forward pass.")
    dtype: tuple[DType, ...] = Field(("float32",), min_length=1, description="Number formats.")
    device: str = Field("auto", description="cpu, cuda, cuda:N, mps, or auto (the first accelerator, else the CPU).")
    threads: int | None = Field(None, ge=1, description="CPU threads of one operation (default: left as they are).")
    image_size: int | None = Field(None, ge=1, description="Edge of the input image, pixels (default: the model's).")
    length: int | None = Field(None, ge=1, description="Length of the input text, tokens (default: the family's).")
    compile: bool = Field(False, description="Measure every variant a second time, through torch.compile.")
    bare: bool = Field(
        False, description="Measure the matrix products of every fused model run bare: the floor of its time."
    )
    memory: bool = Field(True, description="Measure the peak memory of a forward pass.")
    warmup: int = Field(2, ge=0, description="Rounds before the timed ones.")
    repeats: int = Field(10, ge=1, description="Timed rounds; each calls every variant once.")
