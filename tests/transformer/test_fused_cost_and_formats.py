"""Fused models: the trunk and the pooled token in the FLOP count, and other number formats than float32."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.fusion.in_memory import fuse_models
from compress.placing import to_device
from compress.transformer.cost import count_cost
from compress.transformer.model import Transformer
from compress.transformer.surgery import prune_heads

TRUNK = (0, 1, 2)
MEMBERS = ((0, 1, 3), (2,), (1, 2))


def fused(model: Transformer) -> Transformer:
    """Three members that keep three, one and two heads behind a trunk of one layer."""
    above = len(model.layers) - 1
    return fuse_models([prune_heads(model, [TRUNK, *[heads] * above]) for heads in MEMBERS])


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_the_trunk_is_counted_once_and_the_last_layer_for_the_pooled_token(name: str) -> None:
    model = fused(CASES[name]().model)
    cost = count_cost(model)
    assert [layer.streams for layer in cost.layers] == [1, 3, 3]
    assert cost.asking == 1
    alone = count_cost(prune_heads(CASES[name]().model, [TRUNK] * len(model.layers)))
    assert cost.layers[0] == alone.layers[0]
    assert cost.layers[1].total == 3 * alone.layers[1].total, "members are padded to the largest"
    assert cost.layers[-1].mlp * cost.tokens == cost.layers[1].mlp
    frozen = copy.deepcopy(model).requires_grad_(False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        frozen(frozen.stem.example(1))
    assert counter.get_total_flops() == cost.flops, "it is what runs"


FORMATS = [
    ("cpu", torch.bfloat16),
    pytest.param("cuda", torch.bfloat16, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
    pytest.param("cuda", torch.float16, marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.mark.parametrize(("device", "dtype"), FORMATS)
@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_narrow_formats_agree_with_float32(name: str, device: str, dtype: torch.dtype) -> None:
    case = CASES[name]()
    model = fused(case.model)
    with torch.inference_mode():
        expected = model.members(case.inputs)
        narrow = copy.deepcopy(model).to(device, dtype)
        found = narrow.members(to_device(case.inputs, torch.device(device), dtype)).cpu()
    assert found.dtype == dtype
    scale = float(expected.abs().max())
    assert float((found.float() - expected).abs().max()) < 40 * torch.finfo(dtype).eps * scale
    assert not torch.equal(found[0], found[1])
