"""What the models of an evaluation cost: parameters, bytes, FLOPs, time, memory, energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.evaluation.energy import measure_energy
from compress.evaluation.latency import Latency, measure_latency
from compress.evaluation.memory import UnmeasurableError, peak_memory
from compress.evaluation.options import Evaluate
from compress.evaluation.result import Cost
from compress.evaluation.subject import Subject
from compress.placing import to_device
from compress.runtime import Runtime

Pass = Callable[[], object]


def measure_costs(
    subjects: Sequence[Subject],
    test: Dataset,
    lengths: Mapping[str, Counter[int]],
    options: Evaluate,
    runtime: Runtime,
) -> dict[str, Cost]:
    """The costs by the model's name.

    Time, memory and energy are those of one batch of the first ``options.latency_batch`` inputs.

    Args:
        subjects: the models.
        test: the evaluated set.
        lengths: by the model's name, how many inputs had how many real tokens; empty for images.
        options: what to measure.
        runtime: device and number format.
    """
    device, batch = runtime.torch_device(), min(options.latency_batch, len(test))
    wanted = options.latency or options.memory or options.energy
    passes = {subject.name: _forward_pass(subject, test, batch, runtime) for subject in subjects} if wanted else {}
    with torch.inference_mode():
        times = measure_latency(passes, device=device) if options.latency else {}
        extra = {subject.name: _extra(subject, passes, batch, options, device) for subject in subjects}
    return {
        subject.name: _cost(subject, lengths[subject.name], times.get(subject.name), batch, extra[subject.name])
        for subject in subjects
    }


def counted(cost: Cost) -> Cost:
    """What of a cost was counted and not measured: the same in every run."""
    return Cost(**{name: getattr(cost, name) for name in ("params", "bytes", "flops", "flops_p05", "flops_p95")})


def _forward_pass(subject: Subject, test: Dataset, batch: int, runtime: Runtime) -> Pass:
    first = next(iter(batches(test, preprocessor(subject.models[0]), batch_size=batch, indices=range(batch))))
    return partial(subject.module, to_device(first.inputs, runtime.torch_device(), runtime.torch_dtype()))


def _extra(
    subject: Subject, passes: Mapping[str, Pass], batch: int, options: Evaluate, device: torch.device
) -> dict[str, Any]:
    """Memory and energy, and the reasons why some of it is missing."""
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    if options.memory:
        try:
            found["peak_mb"] = peak_memory(passes[subject.name], subject.module, device) / 1e6
        except UnmeasurableError as unmeasurable:
            reasons["peak_mb"] = str(unmeasurable)
    if options.energy:
        energy = measure_energy(passes[subject.name], batch, device, options.country)
        if isinstance(energy, str):
            reasons |= {"energy_j": energy, "co2_g": energy}
        else:
            found |= {"energy_j": energy.joules, "co2_g": energy.co2_grams}
            if energy.co2_grams is None:
                reasons["co2_g"] = "no country was given (--country)"
    return found | {"reasons": reasons}


def _cost(
    subject: Subject, lengths: Counter[int], latency: Latency | None, batch: int, extra: Mapping[str, Any]
) -> Cost:
    if lengths:
        sizes = sorted(lengths)
        flops = np.repeat([float(subject.flops(size)) for size in sizes], [lengths[size] for size in sizes])
        mean, low, high = float(flops.mean()), float(np.quantile(flops, 0.05)), float(np.quantile(flops, 0.95))
    else:
        mean = low = high = float(subject.flops(None))
    return Cost(
        params=subject.parameters,
        bytes=subject.bytes_on_disk,
        flops=mean,
        flops_p05=low,
        flops_p95=high,
        latency=latency,
        throughput=None if latency is None else batch / latency.median_ms * 1000,
        **extra,
    )
