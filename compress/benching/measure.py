"""One run: every variant timed in turns on one batch, and the memory of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from compress.benching.options import Bench
from compress.benching.result import BenchRow
from compress.benching.variants import LIBRARY, SINGLE, Variant
from compress.evaluation.latency import measure_latency
from compress.evaluation.memory import UnmeasurableError, peak_memory
from compress.transformer.executed_flops import executed_flops
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs


@dataclass(frozen=True)
class _Pass:
    """A forward pass of a variant, as it is or compiled."""

    variant: Variant
    compiled: bool
    call: Callable[[], object]

    @property
    def key(self) -> str:
        return f"{self.variant.name}, compiled" if self.compiled else self.variant.name


def measured(
    variants: Sequence[Variant], inputs: Inputs, batch: int, options: Bench, device: torch.device
) -> list[BenchRow]:
    """A row per variant, and one more for each when ``options.compile`` is set.

    Args:
        variants: the variants, ``library`` and ``single`` among them.
        inputs: a batch of ``batch`` inputs on ``device``.
        options: warm-up, rounds, and what to measure.
    """
    passes = list(_passes(variants, inputs, compiled=options.compile))
    calls = {one.key: one.call for one in passes}
    times = measure_latency(calls, device=device, warmup=options.warmup, repeats=options.repeats)
    flops = {variant.name: _executed(variant, batch, options.length) for variant in variants}
    rows = []
    for one in passes:
        variant, latency = one.variant, times[one.key]
        ratios = {}
        for baseline, suffix in ((LIBRARY, ""), (SINGLE, "_single")):
            ratios[f"time_ratio{suffix}"] = latency.median_ms / times[baseline].median_ms
            ratios[f"flops_ratio{suffix}"] = flops[variant.name] / flops[baseline]
        row = BenchRow(
            name=variant.name,
            kind=variant.kind,
            members=variant.members,
            branch_layer=variant.branch_layer,
            compiled=one.compiled,
            latency=latency,
            throughput=batch / latency.median_ms * 1000,
            flops=flops[variant.name],
            params=variant.params,
            **ratios,
            **(_memory(one, device) if options.memory else {}),
        )
        rows.append(row)
    return rows


def _passes(variants: Sequence[Variant], inputs: Inputs, *, compiled: bool) -> Iterator[_Pass]:
    for variant in variants:
        yield _Pass(variant, False, variant.bound(inputs))
        if compiled and variant.prepare is None:
            yield _Pass(variant, True, partial(torch.compile(variant.module, dynamic=False), inputs))


def _executed(variant: Variant, batch: int, length: int | None) -> float:
    """FLOPs per input of the pass that was timed last."""
    model = variant.module
    if variant.prepare is not None or not isinstance(model, Transformer) or model.usage is None:
        return float(variant.flops)
    return float(executed_flops(model, model.usage, [length] * batch).total.mean())


def _memory(one: _Pass, device: torch.device) -> dict[str, Any]:
    """The peak, or the reason why it is not known; nothing for bare products, which are no model."""
    if one.variant.kind == "bare":
        return {}
    try:
        return {"peak_mb": peak_memory(one.call, one.variant.module, device) / 1e6}
    except UnmeasurableError as unmeasurable:
        return {"reason": str(unmeasurable)}
