"""FLOPs of what ran: those that torch counts, input by input."""

from __future__ import annotations

import pytest
import torch
from tiny.all_cases import CASES
from tiny.budgeted import fresh, varied
from tiny.ragged import ragged
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.attention import skipping
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.cost import count_cost
from compress.transformer.executed_flops import executed_flops
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs


def counted(model: Transformer, inputs: Inputs) -> int:
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.members(inputs)
    return counter.get_total_flops()


@pytest.mark.parametrize("kernel", ["attend_by_row", "attend_by_head"])
def test_they_are_what_torch_counts(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["timm plain"]()
    model = varied(case.model)
    for name in ("attend_by_row", "attend_by_head"):
        monkeypatch.setattr(skipping, name, getattr(skipping, kernel))
    total = counted(model, case.inputs)
    found = executed_flops(model, model.usage, [None] * len(case.inputs))
    assert found.total.sum() == total
    assert found.total.unique().numel() > 1


@pytest.mark.parametrize("share", [None, 0.5, 1.0])
def test_padded_heads_cost_what_they_are_computed_for(share: float | None) -> None:
    case = CASES["timm plain"]()
    model = varied(ragged(case.model))
    model.budget(share)
    total = counted(model, case.inputs)
    found = executed_flops(model, model.usage, [None] * len(case.inputs)).total.sum()
    # Predictors are part of the count whether or not the user's share makes them needless.
    predictors = [2 * (24 * 8 + 8) * attention.groups for _, attention in budgeted_attentions(model)]
    assert found == total + (0 if share is None else len(case.inputs) * sum(predictors))


def test_without_usage_everything_ran() -> None:
    model = CASES["bert"]().model
    found = executed_flops(model, None, [3, 5])
    assert found.total.tolist() == [count_cost(model, length=length).flops for length in (3, 5)]
    assert found.attention.tolist() == [count_cost(model, length=length).attention_flops for length in (3, 5)]


@pytest.mark.parametrize("name", ["timm plain", "bert", "albert"])
def test_all_heads_cost_what_the_model_and_its_predictors_cost(name: str) -> None:
    case = CASES[name]()
    model = fresh(case.model)
    model.budget(1.0)
    with torch.no_grad():
        model.members(case.inputs)
    assert model.usage is not None
    assert len(model.usage.heads) == len(model.order)
    length = None if isinstance(case.inputs, torch.Tensor) else 5
    inputs = len(case.inputs) if isinstance(case.inputs, torch.Tensor) else len(case.inputs["input_ids"])
    found = executed_flops(model, model.usage, [length] * inputs)
    assert found.total.tolist() == [count_cost(model, length=length).flops] * inputs
    predictors = sum(model.layers[index].attention.selection_flops for index in model.order)
    assert found.total[0] == count_cost(case.model, length=length).flops + predictors


def test_half_the_heads_are_half_the_attention() -> None:
    case = CASES["timm plain"]()
    model = fresh(case.model)
    costs = []
    for share in (0.5, 1.0):
        model.budget(share)
        with torch.no_grad():
            model.members(case.inputs)
        costs.append(executed_flops(model, model.usage, [None] * len(case.inputs)).attention[0])
    predictors = sum(layer.attention.selection_flops for layer in model.layers)
    assert 2 * (costs[0] - predictors) == costs[1] - predictors
