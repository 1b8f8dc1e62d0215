"""What the models of an evaluation cost: parameters, bytes, FLOPs, time, memory, energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from compress.backbones.registry import preprocessor
from compress.data.base import Dataset
from compress.data.batches import batches
from compress.evaluation.collect import Collected
from compress.evaluation.energy import measure_energy
from compress.evaluation.latency import Latency, measure_latency
from compress.evaluation.memory import UnmeasurableError, peak_memory
from compress.evaluation.options import Evaluate
from compress.evaluation.result import Cost
from compress.evaluation.subject import Subject
from compress.placing import to_device
from compress.runtime import Runtime

Pass = Callable[[], object]

COUNTED = (
    "params",
    "bytes",
    *(f"{name}{suffix}" for name in ("flops", "attention_flops") for suffix in ("", "_p05", "_p95")),
)
"""The costs that are counted and not measured."""


def measure_costs(
    subjects: Sequence[Subject],
    test: Dataset,
    collected: Mapping[str, Collected],
    options: Evaluate,
    runtime: Runtime,
) -> dict[str, Cost]:
    """The costs by the model's name.

    Time, memory and energy are those of one batch of the first ``options.latency_batch`` inputs.

    Args:
        subjects: the models.
        test: the evaluated set.
        collected: by the model's name, what running over the evaluated set gave.
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
        subject.name: _cost(subject, collected[subject.name], times.get(subject.name), batch, extra[subject.name])
        for subject in subjects
    }


def counted(cost: Cost) -> Cost:
    """What of a cost was counted and not measured: the same in every run."""
    return Cost(**{name: getattr(cost, name) for name in COUNTED})


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
    subject: Subject, collected: Collected, latency: Latency | None, batch: int, extra: Mapping[str, Any]
) -> Cost:
    flops, attention = _flops(subject, collected)
    return Cost(
        params=subject.parameters,
        bytes=subject.bytes_on_disk,
        **_spread("flops", flops),
        **_spread("attention_flops", attention),
        latency=latency,
        throughput=None if latency is None else batch / latency.median_ms * 1000,
        **extra,
    )


def _flops(subject: Subject, collected: Collected) -> tuple[np.ndarray, np.ndarray]:
    """FLOPs of the whole model and of its attentions, over the evaluated inputs: what was executed for each."""
    if collected.use is not None:
        return collected.use.flops.numpy(), collected.use.attention_flops.numpy()
    sizes: list[int | None] = [*sorted(collected.lengths)] or [None]
    inputs = [1 if size is None else collected.lengths[size] for size in sizes]
    costs = [subject.flops(size) for size in sizes]
    return np.repeat([whole for whole, _ in costs], inputs), np.repeat([part for _, part in costs], inputs)


def _spread(name: str, flops: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(flops, [0.05, 0.95]).tolist()
    return {name: float(flops.mean()), f"{name}_p05": low, f"{name}_p95": high}
