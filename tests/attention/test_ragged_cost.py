"""Groups with different numbers of heads cost what the largest costs in every group, and not more."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.attention.attention import Attention


def counted(*kept: tuple[int, ...]) -> int:
    module = Attention(8, 2, kept, original_heads=4).eval().requires_grad_(False)
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        module(torch.zeros(2 * len(kept), 5, 8))
    return counter.get_total_flops()


def test_a_group_is_padded_to_the_largest_and_not_to_the_original() -> None:
    assert counted((0, 1, 3), (2,), (1, 2)) == 3 * counted((0, 1, 2))
    assert counted((0,), (3,)) == 2 * counted((2,))
    assert 3 * counted((1,)) == counted((0, 1, 2)), "nothing else grows with the model"


def test_a_grouped_projection_is_one_product_and_no_copy_of_its_operands() -> None:
    module = Attention(8, 2, [(0, 1), (2, 3), (1, 2)], original_heads=4).eval()
    with torch.inference_mode(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(torch.zeros(6, 5, 8))
    calls = {event.key: event.count for event in profile.key_averages()}
    assert calls["aten::baddbmm"] == 2, "queries, keys and values in one, the output in the other"
    # The one copy of each product is torch's own: it writes the bias where the product is then added.
    assert calls.get("aten::copy_", 0) <= 2
    assert not {"aten::clone", "aten::contiguous", "aten::cat"} & set(calls)
