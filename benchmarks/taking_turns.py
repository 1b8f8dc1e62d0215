"""What the speed benchmarks share: ViT-B/16 on random weights, and calls that are timed in turns."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from compress.allocator import allocator
from compress.backbones.source import ModelSource
from compress.opening import open_model
from compress.transformer.model import Transformer

CLASSES = 1000
SHAPE = {"img_size": 224, "patch_size": 16, "embed_dim": 768, "depth": 12, "num_heads": 12}
Call = Callable[[], object]
Times = list[tuple[float, float]]
"""Per round the time on the clock and that of the processor, s."""


def dense_model() -> Transformer:
    """ViT-B/16 with timm's random weights."""
    preprocessing = {"mean": [0.5] * 3, "std": [0.5] * 3, "resize": "squash", "interpolation": "bilinear"}
    source = ModelSource(
        adapter="timm",
        name="vit_base_patch16_224",
        weights="random",
        labels=tuple(str(number) for number in range(CLASSES)),
        arguments=SHAPE,
        preprocessing=preprocessing,
    )
    return open_model(source)


def random_images(batch: int) -> Tensor:
    """``(batch, 3, 224, 224)``, the same every time."""
    return torch.randn(batch, 3, SHAPE["img_size"], SHAPE["img_size"], generator=torch.Generator().manual_seed(0))


def seconds(calls: Mapping[str, Call], rounds: int) -> dict[str, Times]:
    """Time every call once per round, after a first one that warms up; the order turns from round to round."""
    names, found = list(calls), {name: Times() for name in calls}
    for call in calls.values():
        call()
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            _wait()
            clock, processor = time.perf_counter(), time.process_time()
            calls[name]()
            _wait()
            found[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return found


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ratios(own: Times, dense: Times) -> str:
    """Medians of the rounds' ratios, and their quartiles."""
    words = []
    for kind, name in enumerate(("clock", "processor")):
        low, middle, high = statistics.quantiles([a[kind] / b[kind] for a, b in zip(own, dense, strict=True)], n=4)
        words.append(f"{name} {middle:.3f} ({low:.3f} – {high:.3f})")
    return ", ".join(words)


def milliseconds(times: Times) -> str:
    """Median time on the clock."""
    return f"{1000 * statistics.median(clock for clock, _ in times):.1f} ms"


def circumstances(dtype: str, place: torch.device) -> str:
    """What the figures depend on; the load average, because a busy machine measures itself."""
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{dtype}, {place}, {torch.get_num_threads()} threads, {os.cpu_count()} cores, {allocator()}{load}"
