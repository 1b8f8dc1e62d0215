"""Counted FLOPs: attention is in them, and they grow as attention does."""

from __future__ import annotations

import pytest
import torch
from tiny.all_cases import CASES
from torch.utils.flop_counter import FlopCounterMode

from compress.backbones.registry import build_skeleton
from compress.transformer.cost import count_cost
from compress.transformer.surgery import prune_heads


@pytest.mark.parametrize("name", ["bert", "albert", "distilbert", "open_clip text"])
def test_twice_the_tokens_cost_more_than_twice_the_flops(name: str) -> None:
    model = CASES[name]().model
    short, long = (count_cost(model, length=length).flops for length in (6, 12))
    assert long > 2 * short


def test_attention_is_counted_where_torchs_counter_on_a_cpu_says_nothing() -> None:
    case = CASES["timm plain"]()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        case.model(case.inputs[:1])
    scores_and_sums = sum(
        2 * 2 * asking * 17 * layer.attention.width
        for asking, layer in zip((17, 17, 1), case.model.layers, strict=True)
    )
    uncounted = count_cost(case.model).flops - counter.get_total_flops()
    assert uncounted in (0, scores_and_sums), "0 once torch counts the fused kernel on a CPU"
    assert count_cost(case.model).layers[0].attention > 0


@pytest.mark.parametrize("name", ["timm plain", "bert", "open_clip image"])
def test_half_the_heads_are_half_the_attention(name: str) -> None:
    model = CASES[name]().model
    halved = prune_heads(model, [(0, 2)] * len(model.layers))
    for whole, half in zip(count_cost(model).layers, count_cost(halved).layers, strict=True):
        assert half.attention * 2 == whole.attention
        assert half.mlp == whole.mlp


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_a_skeleton_s_memory_is_no_index_out_of_bounds(name: str) -> None:
    """A skeleton's buffers of positions are indices; they are whatever its memory held before unless they are set."""
    model = CASES[name]().model
    held = [torch.full((1 << 18,), 2**40) for _ in range(64)]  # so that the next memory is full of large numbers
    del held
    skeleton = build_skeleton(model.config)
    assert count_cost(skeleton).flops == count_cost(model).flops
