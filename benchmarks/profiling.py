"""Where the time of a call goes, by torch's profiler."""

from __future__ import annotations

import time

from taking_turns import Call
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "matrix products": ("addmm", "mm", "bmm", "baddbmm", "linear"),
    "scaled dot-product attention": ("_scaled_dot_product_flash_attention_for_cpu", "_softmax"),
    "patch embedding": ("mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward"),
    "GELU": ("gelu",),
    "norms": ("native_layer_norm", "layer_norm"),
    "sums": ("add", "add_", "sum", "mean"),
    "selection of weights": ("index_select",),
    "other copies": ("copy_", "cat", "clone", "stack"),
}
"""Operators by what they are for; their own time, without what they call."""


def profiled(call: Call, repeats: int = 10) -> str:
    """Shares of the time on the clock: kinds of operators, the other operators, and what lies between them."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        whole = time.perf_counter() - begin
    found = dict.fromkeys([*KINDS, "other operators"], 0.0)
    for event in profiler.key_averages():
        name = event.key.removeprefix("aten::")
        kind = next((kind for kind, names in KINDS.items() if name in names), "other operators")
        found[kind] += event.self_cpu_time_total / 1e6
    found["between operators"] = max(0.0, whole - sum(found.values()))
    return ", ".join(f"{kind} {taken / whole:.0%}" for kind, taken in found.items() if taken >= 0.005 * whole)
