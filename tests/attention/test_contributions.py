"""One head's own part of an attention's output."""

from __future__ import annotations

import pytest
import torch
from tiny.all_cases import CASES, ONE_PER_FAMILY

from compress.attention.attention import Attention


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
@pytest.mark.parametrize("last", [False, True])
def test_the_output_without_a_head_is_the_output_less_its_contribution(name: str, last: bool) -> None:
    case = CASES[name]()
    with torch.inference_mode():
        hidden = case.model.embed(case.inputs)
        layer = case.model.layers[0]
        attention, x = layer.attention, layer.attention_input(hidden.states)
        pooled = hidden.pooled if last else None
        context = attention.context(x, hidden.mask, pooled=pooled)
        without = attention.project(context) - attention.contributions(context)
        for head in range(attention.slots):
            gate = torch.ones(1, attention.slots)
            gate[0, head] = 0
            masked = attention(x, hidden.mask, gate=gate, pooled=pooled)
            torch.testing.assert_close(without[head], masked, atol=1e-5, rtol=1e-5)


def test_contributions_of_some_heads_are_a_part_of_those_of_all() -> None:
    case = CASES["timm plain"]()
    attention = case.model.layers[0].attention
    context = torch.randn(2, 5, attention.slots, attention.head_width)
    torch.testing.assert_close(attention.contributions(context, slice(1, 3)), attention.contributions(context)[1:3])


def test_several_groups_have_no_single_contribution() -> None:
    attention = Attention(8, 2, [(0, 1), (1, 2)], original_heads=4)
    with pytest.raises(ValueError, match="2 groups"):
        attention.contributions(torch.zeros(2, 1, 2, 2))
