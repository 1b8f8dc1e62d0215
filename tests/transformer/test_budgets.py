"""Budgets per input: only what was chosen is computed, and nothing else changes the result."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.budgeted import fresh, varied
from tiny.ragged import ragged
from torch import Tensor

from compress.attention import skipping
from compress.attention.attention import Attention
from compress.attention.budget_config import BudgetConfig
from compress.attention.budgeted import BudgetedAttention, Gating, best
from compress.errors import ModelError, UsageError
from compress.transformer.budgets import budgeted_attentions, with_budgets
from compress.transformer.config import ModelConfig
from compress.transformer.model import Transformer
from compress.transformer.parts import Inputs
from compress.transformer.routing import routed_layers, with_routers
from compress.transformer.routing_config import RoutingConfig
from compress.transformer.surgery import prune_heads

Kernel = Callable[[Attention, skipping.Work], Tensor]
KINDS = (
    *ONE_PER_FAMILY,
    "albert",
    "open_clip text",
    "distilbert",
    "timm registers",
    "timm q/k norm",
    "open_clip text own attention",
    "timm average pooling",
)


def members(model: Transformer, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        return model.members(inputs)


def masked(model: Transformer, inputs: Inputs) -> Tensor:
    """All heads computed, those that are not chosen multiplied by 0."""
    for _, attention in budgeted_attentions(model):
        attention.gating = "hard"
    try:
        return model.members(inputs).detach()
    finally:
        for _, attention in budgeted_attentions(model):
            attention.gating = None


def rows(inputs: Inputs, index: Tensor) -> Inputs:
    return inputs[index] if isinstance(inputs, Tensor) else {name: tensor[index] for name, tensor in inputs.items()}


def size(inputs: Inputs) -> int:
    return len(inputs) if isinstance(inputs, Tensor) else len(inputs["input_ids"])


def executed(model: Transformer) -> Tensor:
    assert model.usage is not None
    return torch.cat([heads.flatten() for heads in model.usage.heads if heads is not None])


@pytest.mark.parametrize("name", KINDS)
def test_a_fresh_budget_of_one_is_the_original_bit_for_bit(name: str) -> None:
    case = CASES[name]()
    budgeted = fresh(case.model)
    budgeted.budget(1.0)
    assert torch.equal(members(budgeted, case.inputs), members(case.model, case.inputs))


@pytest.mark.parametrize("kernel", [skipping.attend_by_row, skipping.attend_by_head])
@pytest.mark.parametrize("name", KINDS)
def test_skipping_is_masking(name: str, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]()
    budgeted = varied(case.model)
    monkeypatch.setattr(skipping, "attend_by_row", kernel)
    monkeypatch.setattr(skipping, "attend_by_head", kernel)
    skipped = members(budgeted, case.inputs)
    assert executed(budgeted).unique().numel() > 1, "the inputs must differ in their budgets"
    torch.testing.assert_close(skipped, masked(budgeted, case.inputs), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_a_row_does_not_depend_on_its_batch(name: str) -> None:
    case = CASES[name]()
    budgeted = varied(case.model).double()
    inputs = case.inputs.double() if isinstance(case.inputs, Tensor) else case.inputs
    together = members(budgeted, inputs)
    order = torch.arange(size(inputs)).flip(0)
    torch.testing.assert_close(members(budgeted, rows(inputs, order)), together[:, order], atol=1e-6, rtol=0)
    for index in order.tolist():
        alone = members(budgeted, rows(inputs, torch.tensor([index])))
        torch.testing.assert_close(alone, together[:, index : index + 1], atol=1e-6, rtol=0)


def test_by_row_a_row_is_the_same_bit_for_bit_in_any_batch() -> None:
    case = CASES["timm plain"]()
    attention = next(iter(budgeted_attentions(varied(case.model))))[1]
    x = torch.randn(9, skipping.TOKENS_WORTH_A_COPY, attention.width)
    with torch.no_grad():
        together = attention(x)
        assert torch.equal(attention(x.flip(0)), together.flip(0))
        assert torch.equal(attention(x[4:5]), together[4:5])


def test_padding_changes_nothing() -> None:
    case = CASES["bert"]()
    budgeted = varied(case.model).double()
    assert not isinstance(case.inputs, Tensor)
    padded = {name: torch.nn.functional.pad(tensor, (0, 3)) for name, tensor in case.inputs.items()}
    torch.testing.assert_close(members(budgeted, padded), members(budgeted, case.inputs), atol=1e-6, rtol=0)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, 1), st.integers(1, 12))
def test_at_least_one_head_runs_and_never_more_than_there_are(budget: float, heads: int) -> None:
    attention = budgeted_layer(heads)
    attention.rule = BudgetConfig(fixed=max(budget, 1e-9))
    with torch.no_grad():
        attention(torch.randn(3, 4, attention.width))
    assert attention.executed is not None
    assert attention.executed.tolist() == [min(max(int(budget * heads + 1e-4), 1), heads)] * 3


def budgeted_layer(heads: int) -> BudgetedAttention:
    generator = torch.Generator().manual_seed(heads)
    attention = BudgetedAttention(
        Attention(2 * heads, 2, [tuple(range(heads))], original_heads=heads), BudgetConfig(hidden=4)
    )
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return attention.eval()


def test_ties_go_to_the_lowest_head() -> None:
    chosen = best(torch.tensor([[1.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]]), torch.tensor([3, 2]))
    assert chosen.tolist() == [[True, True, True, False], [True, True, False, False]]


@pytest.mark.parametrize("gating", ["soft", "hard"])
@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_gradients_reach_predictor_and_scorer(name: str, gating: Gating) -> None:
    case = CASES[name]()
    budgeted = varied(case.model)
    for _, attention in budgeted_attentions(budgeted):
        attention.gating = gating
    budgeted.members(case.inputs).square().mean().backward()
    for index, attention in budgeted_attentions(budgeted):
        for part, parameter in attention.chooser.named_parameters():
            assert parameter.grad is not None, f"{index} {part}"
            assert parameter.grad.abs().sum() > 0, f"{index} {part}"


@pytest.mark.parametrize("gating", [None, "hard", "soft"])
def test_projections_learn_in_the_heads_that_count(gating: Gating | None) -> None:
    case = CASES["bert"]()
    budgeted = varied(case.model, BudgetConfig(hidden=8, fixed=0.25)).train()
    for _, attention in budgeted_attentions(budgeted):
        attention.gating = gating
    budgeted.members(case.inputs).square().mean().backward()
    for _, attention in budgeted_attentions(budgeted):
        assert attention.decision is not None
        chosen = best(attention.decision.shares, attention.decision.heads).any(0)
        assert not chosen.all(), "three inputs with one head each leave one of four heads out"
        assert attention.qkv.weight.grad is not None
        assert attention.output.weight.grad is not None
        by_head = attention.qkv.weight.grad.view(3, attention.slots, -1).abs().sum((0, 2))
        columns = attention.output.weight.grad.view(attention.width, attention.slots, -1).abs().sum((0, 2))
        for learned in (by_head, columns):
            assert (learned > 0).tolist() == (chosen | (gating == "soft")).tolist()


def test_a_copy_can_be_made_after_a_training_step() -> None:
    case = CASES["bert"]()
    budgeted = varied(case.model)
    for _, attention in budgeted_attentions(budgeted):
        attention.gating = "soft"
    budgeted.members(case.inputs).mean().backward()
    assert torch.equal(members(copy.deepcopy(budgeted), case.inputs), members(budgeted, case.inputs))


@pytest.mark.parametrize("name", ONE_PER_FAMILY)
def test_nan_is_an_error(name: str) -> None:
    case = CASES[name]()
    budgeted = varied(case.model)
    with torch.no_grad():
        if isinstance(case.inputs, Tensor):
            broken: Inputs = case.inputs.clone()
            broken[1] = torch.nan  # type: ignore[index]
        else:
            broken = case.inputs
            next(budgeted.stem.parameters()).fill_(torch.nan)
    with pytest.raises(ModelError, match="not finite"):
        members(budgeted, broken)


def test_the_user_can_fix_or_cap_the_budget() -> None:
    case = CASES["timm plain"]()
    budgeted = varied(case.model)
    own = members(budgeted, case.inputs)
    before = executed(budgeted)
    budgeted.budget(0.5)
    members(budgeted, case.inputs)
    heads = budgeted.layers[0].attention.original_heads
    assert executed(budgeted).unique().tolist() == [heads // 2]
    budgeted.budget(0.5, cap=True)
    members(budgeted, case.inputs)
    capped = executed(budgeted)
    assert int(capped.max()) <= heads // 2
    assert capped[: size(case.inputs)].tolist() == before[: size(case.inputs)].clamp(max=heads // 2).tolist()
    budgeted.budget(None)
    assert torch.equal(members(budgeted, case.inputs), own)
    with pytest.raises(UsageError, match="share"):
        budgeted.budget(0.0)
    with pytest.raises(ModelError, match="no budgets"):
        case.model.budget(0.5)


def test_budgets_of_a_pruned_model_count_its_heads() -> None:
    case = CASES["timm plain"]()
    pruned = prune_heads(case.model, [(0, 2, 3), (1,), (0, 3)])
    budgeted = varied(pruned)
    torch.testing.assert_close(members(budgeted, case.inputs), masked(budgeted, case.inputs), atol=1e-5, rtol=1e-5)
    assert budgeted.usage is not None
    most = [int(heads.max()) for heads in budgeted.usage.heads if heads is not None]
    assert all(got <= kept for got, kept in zip(most, (3, 1, 2), strict=True))
    whole = fresh(pruned)
    whole.budget(1.0)
    assert torch.equal(members(whole, case.inputs), members(pruned, case.inputs))


@pytest.mark.parametrize("kernel", [skipping.attend_by_row, skipping.attend_by_head])
@pytest.mark.parametrize("routes", [False, True])
def test_skipping_is_masking_in_a_fused_model_of_unequal_members(
    routes: bool, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["timm plain"]()
    budgeted = varied(ragged(case.model))
    if routes:
        budgeted = with_routers(budgeted, RoutingConfig(blocks=(1, 2), capacity=(0.5,))).eval()
        for _, layer in routed_layers(budgeted):
            torch.nn.init.normal_(layer.router.weight, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(skipping, "attend_by_row", kernel)
    monkeypatch.setattr(skipping, "attend_by_head", kernel)
    skipped = members(budgeted, case.inputs)
    assert budgeted.usage is not None
    heads = budgeted.usage.heads[1]
    assert heads is not None
    assert (heads <= torch.tensor([[3], [1], [2]])).all()
    assert executed(budgeted).unique().numel() > 1, "the inputs must differ in their budgets"
    assert (budgeted.usage.tokens[1] is not None) is routes
    torch.testing.assert_close(skipped, masked(budgeted, case.inputs), atol=1e-5, rtol=1e-5)


def test_random_heads_are_the_same_for_an_input_in_any_batch() -> None:
    case = CASES["timm plain"]()
    budgeted = fresh(case.model, BudgetConfig(hidden=8, choice="random", fixed=0.5))
    together = members(budgeted, case.inputs)
    alone = members(budgeted, rows(case.inputs, torch.tensor([1])))
    torch.testing.assert_close(alone, together[:, 1:2], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together, members(fresh(case.model, BudgetConfig(fixed=0.5)), case.inputs))


@pytest.mark.parametrize("training", [False, True])
def test_random_heads_have_equal_factors_that_sum_to_the_budget(training: bool) -> None:
    attention = budgeted_layer(4).double().train(training)
    attention.rule = BudgetConfig(choice="random", fixed=0.7)
    x = torch.randn(6, 5, attention.width, dtype=torch.float64)
    with torch.no_grad():
        found = attention(x)
        assert attention.decision is not None
        assert attention.decision.heads.tolist() == [2] * 6
        chosen = best(attention.decision.shares, attention.decision.heads)
        torch.testing.assert_close(attention.decision.shares, chosen.double() / 2)
        torch.testing.assert_close(found, Attention.forward(attention, x, gate=chosen * (0.7 * 4 / 2)))
    assert len(chosen.unique(dim=0)) > 1, "inputs differ in their heads"


def test_budgets_are_a_part_of_the_configuration() -> None:
    case = CASES["bert"]()
    config = BudgetConfig(hidden=5, fixed=0.5)
    budgeted = with_budgets(case.model, config)
    assert ModelConfig.model_validate_json(budgeted.config.model_dump_json()).budget == config
    with pytest.raises(ModelError, match="budgets already"):
        with_budgets(budgeted, config)
    with pytest.raises(ModelError, match="prune and fuse it first"):
        prune_heads(budgeted, [(0,)] * len(budgeted.layers))
