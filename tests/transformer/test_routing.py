"""Routed layers: capacity 1.0 is the original, skipping is masking, padding and batch mates do not matter."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny.all_cases import CASES, ONE_PER_FAMILY
from tiny.budgeted import varied
from tiny.case import Case
from tiny.ragged import KEPT, ragged
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.attention.attention import Attention, pooled_tokens
from compress.attention.budget_config import BudgetConfig
from compress.errors import ModelError, UnsupportedModelError
from compress.transformer.budgets import budgeted_attentions
from compress.transformer.executed_flops import executed_flops
from compress.transformer.layer import Layer
from compress.transformer.model import Transformer
from compress.transformer.parts import Hidden
from compress.transformer.router import Router
from compress.transformer.routing import RoutedLayer, routed_layers, with_routers
from compress.transformer.routing_config import Choice, Part, RoutingConfig
from compress.transformer.selection import routed_count
from compress.transformer.surgery import prune_heads

EVERYWHERE = (*ONE_PER_FAMILY, "timm registers", "timm average pooling", "distilbert", "albert", "open_clip text")


def routed(model: Transformer, capacity: float = 0.4, *, seed: int | None = 0, **settings: object) -> Transformer:
    """The model with a router in front of every block; ``seed`` None leaves them fresh."""
    blocks = tuple(range(len(model.layers)))
    model = with_routers(model, RoutingConfig(blocks=blocks, capacity=(capacity,), **settings)).eval()
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for _, layer in routed_layers(model):
            layer.router.weight.data.normal_(generator=generator)
            if layer.router.choice == "token":
                layer.router.thresholds.fill_(0.3)
    return model


def passing(layer: RoutedLayer, hidden: Hidden, row: int) -> tuple[list[int], list[float]]:
    """By the definition, in Python: the tokens of a row that pass, and the gate of every token."""
    router, states = layer.router, hidden.states[row].detach()
    own = router.weight.detach()[row // (len(hidden.states) // router.streams)]
    scores = [float(own.double() @ token.double()) for token in states]
    real = range(len(scores)) if hidden.mask is None else [at for at, is_real in enumerate(hidden.mask[row]) if is_real]
    always = set(range(router.prefix_tokens))
    if isinstance(hidden.pooled, Tensor):
        always.add(int(hidden.pooled[row]))
    candidates = sorted((at for at in real if at not in always), key=lambda at: (-scores[at], at))
    if router.choice == "expert":
        chosen = candidates[: math.ceil(router.capacity * len(candidates) - 1e-9)]
    else:
        reached = float(router.thresholds[row // (len(hidden.states) // router.streams)])
        chosen = [at for at in candidates if scores[at] >= reached] or candidates[:1]
    gates = [2 / (1 + math.exp(-scores[at])) if at in chosen else 1.0 for at in range(len(scores))]
    return sorted({*always, *chosen}), gates


def reference_layer(layer: RoutedLayer, hidden: Hidden) -> Tensor:
    """Everything computed, the others hidden by a mask, row by row: ``(R, N, C)``."""
    assert layer.router.streams == 1
    rows = []
    for row, x in enumerate(hidden.states):
        chosen, gates = passing(layer, hidden, row)
        visible = torch.zeros(1, len(x), dtype=torch.bool)
        visible[0, chosen] = True
        alone = Hidden(x[None], visible)
        attended = layer.attention(layer.attention_input(alone.states), alone.mask)
        y = layer.add_attended(alone, attended)
        if layer.skips_mlp:
            y = layer.feed_forward(y)
        out = x.clone()
        for at in chosen:
            out[at] = x[at] + gates[at] * (y[0, at] - x[at])
        rows.append(out if layer.skips_mlp else layer.feed_forward(out))
    return torch.stack(rows)


def reference(model: Transformer, case: Case) -> Tensor:
    """Logits ``(1, B, K)`` of a single model by ``reference_layer``; the pooled tokens are taken at the end."""
    hidden = model.embed(case.inputs)
    for index in model.order:
        hidden = hidden.with_states(reference_layer(model.layers[index], hidden))
    return model.classify(hidden.with_states(pooled_tokens(hidden.states, hidden.pooled)))


def in_double(case: Case) -> Case:
    case.model.double()
    if isinstance(case.inputs, Tensor):
        case.inputs = case.inputs.double()
    return case


@pytest.mark.parametrize("name", CASES)
def test_fresh_routers_at_capacity_1_are_the_original_bit_for_bit(name: str) -> None:
    case = CASES[name]()
    for choice, part in itertools.product(("expert", "token"), ("block", "attention")):
        model = routed(case.model, 1.0, seed=None, choice=choice, part=part)
        with torch.no_grad():
            assert torch.equal(model.members(case.inputs), case.model.members(case.inputs))
        assert all(layer.selection.places is None for _, layer in routed_layers(model)), "nothing is gathered"


@pytest.mark.parametrize("name", EVERYWHERE)
def test_skipping_equals_masking(name: str) -> None:
    case = in_double(CASES[name]())
    for choice, part in itertools.product(("expert", "token"), ("block", "attention")):
        model = routed(case.model, choice=choice, part=part)
        with torch.no_grad():
            torch.testing.assert_close(model.members(case.inputs), reference(model, case), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("choice", ["expert", "token"])
@pytest.mark.parametrize("name", ["timm plain", "bert"])
def test_skipping_equals_masking_in_every_stream_of_unequal_members(name: str, choice: Choice) -> None:
    case = in_double(CASES[name]())
    fused = routed(ragged(case.model), choice=choice)
    expected = []
    for member, heads in enumerate(KEPT):
        kept = [(0, 1, 2, 3), *[heads] * (len(case.model.layers) - 1)]
        alone = routed(prune_heads(case.model, kept), choice=choice)
        for index, layer in routed_layers(alone):
            weight = fused.layers[index].router.weight
            layer.router.weight.data.copy_(weight[member % len(weight)][None])  # the first layer has one for all
        with torch.no_grad():
            expected.append(reference(alone, case)[0])
    with torch.no_grad():
        found = fused.members(case.inputs)
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-9, atol=1e-9)
    assert fused.usage is not None
    if choice == "token":
        assert len({tuple(stream) for stream in fused.usage.tokens[1].tolist()}) > 1, "streams differ in what passes"


@pytest.mark.parametrize("choice", ["expert", "token"])
@pytest.mark.parametrize("name", ["timm plain", "bert"])
def test_skipping_tokens_and_heads_equals_masking_both(name: str, choice: Choice) -> None:
    case = in_double(CASES[name]())
    model = routed(varied(case.model, BudgetConfig(hidden=8, fixed=0.5)), choice=choice)
    with torch.no_grad():
        found = model.members(case.inputs)
    assert model.usage is not None
    assert all(heads is not None and heads.eq(2).all() for heads in model.usage.heads), "two of four heads run"
    for _, attention in budgeted_attentions(model):
        attention.gating = "hard"  # all heads are computed, and those that are not chosen multiplied by 0
    torch.testing.assert_close(found, reference(model, case).detach(), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", ["bert", "albert"])
@pytest.mark.parametrize("choice", ["expert", "token"])
def test_a_row_depends_on_neither_padding_nor_batch_mates(name: str, choice: Choice) -> None:
    case = in_double(CASES[name]())
    model = routed(case.model, 0.5, choice=choice)
    with torch.no_grad():
        together = model.members(case.inputs)[0]
        for row, length in enumerate((11, 3, 7)):
            for padded in (length, length + 2, 16):
                alone = {}
                for key, value in case.inputs.items():
                    alone[key] = nn.functional.pad(value[row : row + 1, :length], (0, padded - length))
                torch.testing.assert_close(model.members(alone)[0, 0], together[row], rtol=1e-9, atol=1e-9)


def test_the_prefix_always_passes_and_is_not_counted() -> None:
    case = CASES["timm registers"]()  # a class token and four registers in front of 16 patches
    model = routed(case.model, 0.25)
    for _, layer in routed_layers(model):
        layer.router.weight.data.neg_()
    with torch.no_grad():
        model(case.inputs)
    for _, layer in routed_layers(model):
        assert layer.selection.passed[:, :5].all()
        assert layer.executed.tolist() == [5 + 4] * 3


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    capacity=st.sampled_from((0.01, 0.125, 0.3, 0.5, 0.999, 1.0)),
    prefix=st.integers(0, 2),
    choice=st.sampled_from(("expert", "token")),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_padding_never_passes_and_the_right_number_does(
    lengths: list[int], capacity: float, prefix: int, choice: Choice, seed: int
) -> None:
    lengths = [max(length, prefix) for length in lengths]
    generator = torch.Generator().manual_seed(seed)
    router = Router(6, capacity=capacity, prefix_tokens=prefix, choice=choice).eval()
    router.weight.data.normal_(generator=generator)
    states = 50 * torch.randn(len(lengths), max(12, *lengths), 6, generator=generator)
    mask = torch.arange(states.shape[1]) < torch.tensor(lengths)[:, None]
    selection = router(Hidden(states, mask))
    assert not (selection.passed & ~mask).any()
    assert selection.passed[:, :prefix].all()
    assert (selection.executed >= 1).all()
    if choice == "expert":
        expected = [prefix + math.ceil(capacity * (length - prefix) - 1e-9) for length in lengths]
        assert selection.executed.tolist() == expected
    assert (selection.places is None) == (capacity == 1)
    gathered = selection.gathered(Hidden(states, mask))
    kept = [states[row][selection.passed[row]] for row in range(len(lengths))]
    for row, own in enumerate(kept):
        torch.testing.assert_close(gathered.states[row][: len(own)], own)
        assert gathered.mask[row].tolist() == [at < len(own) for at in range(gathered.states.shape[1])]


def test_lengths_3_and_50_at_an_eighth_and_a_row_of_padding_alone() -> None:
    layer = routed(CASES["bert"]().model, 0.125).layers[0].double()
    states = torch.randn(3, 50, 24, dtype=torch.float64, requires_grad=True)
    hidden = Hidden(states, torch.arange(50) < torch.tensor([3, 50, 0])[:, None], pooled=1)
    out = layer(hidden).states
    assert layer.executed.tolist() == [1 + 1, 1 + 7, 1]
    torch.testing.assert_close(out, reference_layer(layer, hidden), rtol=1e-9, atol=1e-9)
    assert torch.equal(out[2, 1:], states[2, 1:]), "padding skips"
    found, expected = (
        torch.autograd.grad(made.square().sum(), states)[0] for made in (out, reference_layer(layer, hidden))
    )
    assert found[:, 0].abs().sum() > 0
    torch.testing.assert_close(found[2], expected[2], rtol=1e-9, atol=1e-9)


def test_one_token_and_more_slots_than_tokens() -> None:
    case = CASES["timm average pooling"]()  # no prefix
    layer = routed(case.model, 0.01).layers[0]
    states = torch.randn(2, 1, 24)
    whole = with_routers(case.model, RoutingConfig(blocks=(0,), capacity=(1.0,))).eval().layers[0]
    whole.router.weight.data.copy_(layer.router.weight)
    torch.testing.assert_close(layer(Hidden(states)).states, whole(Hidden(states)).states)
    bert = CASES["bert"]().model
    first = Hidden(torch.randn(2, 1, 24), torch.ones(2, 1, dtype=torch.bool), 1)
    torch.testing.assert_close(routed(bert, 0.01).layers[0](first).states, bert.layers[0](first).states)


def test_a_mask_of_queries_and_keys_is_gathered_in_both() -> None:
    layer = routed(CASES["timm plain"]().model, 0.5).layers[0].double()
    hidden = Hidden(torch.randn(2, 9, 24, dtype=torch.float64))
    keys = torch.arange(9) < torch.tensor([9, 6])[:, None]
    wide = keys[:, None, None, :].expand(2, 1, 9, 9)
    by_keys, by_both = (layer(Hidden(hidden.states, mask)).states for mask in (keys, wide))
    torch.testing.assert_close(by_both, by_keys)
    banded = wide & (torch.arange(9)[:, None] - torch.arange(9)).abs().le(3)
    per_head = banded.expand(2, 4, 9, 9)
    torch.testing.assert_close(
        layer(Hidden(hidden.states, banded)).states, layer(Hidden(hidden.states, per_head)).states
    )
    assert not torch.equal(layer(Hidden(hidden.states, banded)).states, by_both)


def test_routed_count_rounds_up_exactly() -> None:
    assert [routed_count(0.07, 100), routed_count(0.1, 30), routed_count(0.5, 3), routed_count(1e-3, 1)] == [7, 3, 2, 1]
    assert routed_count(0.25, torch.tensor([0, 1, 4, 5])).tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("choice", ["expert", "token"])
@pytest.mark.parametrize("part", ["block", "attention"])
@pytest.mark.parametrize("name", ["timm average pooling", "bert"])
def test_gradients_reach_fresh_routers(name: str, part: Part, choice: Choice) -> None:
    case = CASES[name]()
    model = routed(case.model, 0.5, seed=None, part=part, choice=choice).train()
    model(case.inputs).logsumexp(-1).sum().backward()
    layers = dict(routed_layers(model))
    if name == "bert":
        del layers[2]  # the last runs for the pooled token alone, which has no gate
    for layer in layers.values():
        assert layer.router.weight.grad.abs().sum() > 0
    copy.deepcopy(model)  # for all that the last pass left its graph on the layers


def test_wild_routers_stay_bounded_and_finite_under_autocast() -> None:
    case = CASES["bert"]()
    model = routed(case.model, 0.5).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(50):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(case.inputs)
        optimizer.zero_grad()
        logits.float().square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    for _, layer in routed_layers(model):
        assert layer.selection.scores.dtype == torch.float32
        assert layer.selection.excess().abs().max() <= 1
    assert logits.isfinite().all()


@pytest.mark.parametrize("choice", ["expert", "token"])
@pytest.mark.parametrize("part", ["block", "attention"])
@pytest.mark.parametrize("name", ["timm average pooling", "bert", "albert", "open_clip text"])
def test_counted_flops_are_those_of_torch_on_the_math_path(name: str, part: Part, choice: Choice) -> None:
    case = CASES[name]()
    model = routed(case.model, 0.25, part=part, choice=choice)
    for _, layer in routed_layers(model):
        if choice == "token":
            layer.router.thresholds.fill_(1.0)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model.members(case.inputs)
    # Padding is computed, so it counts here: every row is as long as the longest.
    texts = not isinstance(case.inputs, Tensor)
    lengths = [case.inputs["input_ids"].shape[1]] * len(case.inputs["input_ids"]) if texts else [None] * 3
    counted = executed_flops(model, model.usage, lengths).total
    assert counted.sum() == counter.get_total_flops()
    assert (counted < executed_flops(case.model, None, lengths).total).all()


def test_rows_with_fewer_tokens_pay_for_the_slots_that_the_longest_fills() -> None:
    case = CASES["timm plain"]()
    model = routed(case.model, choice="token")
    with torch.no_grad():
        model.members(case.inputs)
    assert model.usage is not None
    assert len(model.usage.tokens[0].unique()) > 1, "inputs differ in what passes"
    counted = executed_flops(model, model.usage, [None] * 3).total
    assert len(counted.unique()) == 1, "and not in what is computed"


@pytest.mark.parametrize("name", ["timm plain", "bert", "open_clip text"])
def test_the_longest_row_fills_its_slots(name: str) -> None:
    case = CASES[name]()
    model = routed(case.model, 0.5)
    with torch.no_grad():
        model.members(case.inputs)
    assert model.usage is not None
    for selection in model.usage.selections:
        assert selection is not None
        assert selection.slots == selection.executed.max()


def test_token_choice_follows_its_threshold_in_each_row_alone() -> None:
    router = Router(2, capacity=0.25, choice="token")
    router.weight.data.copy_(torch.tensor([[1.0, 0.0]]))
    states = torch.arange(16.0).view(2, 8, 1) * torch.tensor([1.0, 0.0])
    assert router.eval()(Hidden(states)).executed.tolist() == [8, 8], "nothing is learned yet"
    selection = router.train()(Hidden(states))
    assert selection.executed.sum() == 4 + 1, "a quarter of the batch, and the best of a row that has none"
    for _ in range(3):
        router.learn_thresholds([selection])
    assert router.thresholds.tolist() == [12.0]
    assert router.eval()(Hidden(states)).executed.tolist() == [1, 4]
    assert router(Hidden(states[1:])).executed.tolist() == [4]


def test_the_threshold_follows_a_tenth_of_the_way() -> None:
    router = Router(1, capacity=0.5, choice="token")
    router.weight.data.fill_(1.0)
    for value in (8.0, 4.0):
        router.learn_thresholds([router.train()(Hidden(value * torch.tensor([[[1.0], [0.5]]])))])
    torch.testing.assert_close(router.thresholds, torch.tensor([0.9 * 8 + 0.1 * 4]))


def test_a_fitted_threshold_counts_the_token_that_each_row_passes_anyway() -> None:
    router = Router(1, streams=2, capacity=0.5, choice="token").eval()
    router.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    low, high = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([11.0, 12.0, 13.0, 14.0])
    both = Hidden(torch.stack([low, high, low, high]).unsqueeze(2), torch.ones(4, 4, dtype=torch.bool))
    alone = Hidden(torch.stack([high, high])[:, :3].unsqueeze(2), torch.tensor([[True, True, False]] * 2))
    router.fit_thresholds([router(both), router(alone)])
    # Five of the first stream's ten tokens: 4 and 12 and 14 as the best of their rows, then 13, and 12 of the others.
    assert router.thresholds.tolist() == [12.0, -3.0]
    assert [int((router(hidden).passed & router(hidden).routed).sum()) for hidden in (both, alone)] == [8, 2]
    few = Router(1, capacity=0.1, choice="token").eval()
    few.weight.data.fill_(1.0)
    few.fit_thresholds([few(both)])
    assert few.thresholds.tolist() == [14.0]
    assert few(both).executed.tolist() == [1] * 4, "no row is left without"
    few.fit_thresholds([few(Hidden(torch.ones(2, 3, 1), torch.zeros(2, 3, dtype=torch.bool)))])
    assert few.thresholds.tolist() == [14.0], "nothing was seen"


def test_random_choice_is_fixed_and_has_no_gate() -> None:
    case = CASES["timm plain"]()
    model, again = (routed(case.model, 0.5, seed=None, choice="random") for _ in range(2))
    assert not [name for name, _ in model.named_parameters() if "router" in name]
    with torch.no_grad():
        assert torch.equal(model(case.inputs), again(case.inputs))
        for _, layer in routed_layers(model):
            assert layer.executed.tolist() == [1 + 8] * 3
            assert layer.selection.excess().count_nonzero() == 0
            assert layer.selection.scores.std() > 0.1
    whole = routed(case.model, 1.0, seed=None, choice="random")
    assert torch.equal(whole(case.inputs), case.model(case.inputs))


def test_fused_streams_route_their_own_tokens() -> None:
    streams = Router(4, streams=2, capacity=0.5).eval()
    streams.weight.data.copy_(torch.tensor([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]]))
    states = torch.arange(6.0).view(1, 6, 1).expand(2, 6, 4)
    passed = streams(Hidden(states)).passed
    assert passed.tolist() == [[False] * 3 + [True] * 3, [True] * 3 + [False] * 3]


def test_causal_models_are_refused_unless_they_pool_one_token() -> None:
    attention = Attention(8, 4, [(0, 1)], original_heads=2, causal=True)
    layer = Layer(attention, nn.Linear(8, 8), nn.Identity(), nn.Identity())
    causal = RoutedLayer(layer, Router(8, capacity=0.5)).eval()
    with pytest.raises(UnsupportedModelError, match="look ahead"):
        causal(Hidden(torch.randn(2, 5, 8), pooled=1))
    case = CASES["open_clip text"]()
    model = routed(case.model, 0.25)
    with torch.no_grad():
        model(case.inputs)
    for _, layer in routed_layers(model):
        pooled = model.embed(case.inputs).pooled
        assert layer.selection.passed.gather(1, pooled[:, None]).all()


def test_what_follows_the_pooled_token_of_a_causal_tower_changes_nothing() -> None:
    case = CASES["open_clip text"]()
    model = routed(case.model, 0.5)
    ids = case.inputs["input_ids"]
    end = ids.argmax(1)
    after = torch.arange(ids.shape[1]) > end[:, None]
    edited = torch.where(after, torch.randint(1, 100, ids.shape), ids)
    with torch.no_grad():
        torch.testing.assert_close(model({"input_ids": edited}), model({"input_ids": ids}))


def test_refusals_name_the_block() -> None:
    model = CASES["timm plain"]().model
    with pytest.raises(ModelError, match="no block 7"):
        with_routers(model, RoutingConfig(blocks=(0, 7), capacity=(0.5,)))
    with pytest.raises(ModelError, match="routers already"):
        routed(routed(model))
    with pytest.raises(ValueError, match="ascending"):
        RoutingConfig(blocks=(2, 1), capacity=(0.5,))
    with pytest.raises(ValueError, match="2 capacities for 3 blocks"):
        RoutingConfig(blocks=(0, 1, 2), capacity=(0.5, 0.2))
    with pytest.raises(ValueError, match="above 0"):
        RoutingConfig(blocks=(0,), capacity=(0.0,))
