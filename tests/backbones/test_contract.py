"""What every adapter must hold, on random weights in float32; one row per feature of a family."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny.all_cases import CASES
from tiny.case import Case
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from compress.placing import frozen
from compress.transformer.cost import count_cost, count_parameters
from compress.transformer.surgery import prune_heads


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def ragged(case: Case) -> list[tuple[int, ...]]:
    """Another number of heads in every layer, the first layer's among them odd."""
    kept = []
    for index, layer in enumerate(case.model.layers):
        heads = range(layer.attention.original_heads)
        count = (3, 1, 2)[index % 3]
        kept.append(tuple(sorted([*heads[-1:], *heads[: count - 1]])))
    return kept


def zeroed(case: Case, kept: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    return [
        (index, head)
        for index, layer in enumerate(case.model.layers)
        for head in range(layer.attention.original_heads)
        if head not in kept[index]
    ]


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= 1e-5 * max(1.0, float(expected.abs().max()))


def test_own_attention_gives_the_library_s_logits(case: Case) -> None:
    reference = case.reference()
    assert float(reference.std()) > 1e-3, "logits that hardly vary would hide a mistake"
    with torch.no_grad():
        assert_close(case.model(case.inputs), reference)


def test_keeping_all_heads_is_the_identity(case: Case) -> None:
    everything = [layer.attention.kept_heads[0] for layer in case.model.layers]
    with torch.no_grad():
        assert torch.equal(prune_heads(case.model, everything)(case.inputs), case.model(case.inputs))


def test_pruned_equals_the_library_s_model_with_the_other_contexts_zeroed(case: Case) -> None:
    kept = ragged(case)
    expected = case.masked_reference(zeroed(case, kept))
    assert not torch.allclose(expected, case.reference(), atol=1e-4), "the removed heads matter"
    with torch.no_grad():
        pruned = prune_heads(case.model, kept)
        assert_close(pruned(case.inputs), expected)
    assert [len(layer.attention.kept_heads[0]) for layer in pruned.layers] == [len(heads) for heads in kept]
    assert count_parameters(pruned) < count_parameters(case.model)


def test_gates_of_zero_are_pruned_heads(case: Case) -> None:
    kept = ragged(case)
    gates = [
        torch.tensor([[float(head in heads) for head in layer.attention.kept_heads[0]]])
        for layer, heads in zip(case.model.layers, kept, strict=True)
    ]
    with torch.no_grad():
        assert_close(case.model.members(case.inputs, gates=gates)[0], case.masked_reference(zeroed(case, kept)))


def test_pruning_twice_is_pruning_once(case: Case) -> None:
    kept = ragged(case)
    wider = [tuple(sorted({*heads, 1})) for heads in kept]
    with torch.no_grad():
        twice = prune_heads(prune_heads(case.model, wider), kept)
        assert torch.equal(twice(case.inputs), prune_heads(case.model, kept)(case.inputs))


def test_a_training_step_after_surgery_moves_every_attention(case: Case) -> None:
    fresh = copy.deepcopy(prune_heads(case.model, ragged(case))).train()  # which shares its norms with case.model
    attentions = {name: value for name, value in fresh.named_parameters() if ".attention." in name}
    before = {name: value.detach().clone() for name, value in attentions.items()}
    optimizer = torch.optim.SGD(attentions.values(), lr=0.5)
    labels = torch.zeros(fresh(case.inputs).shape[0], dtype=torch.long)
    torch.nn.functional.cross_entropy(fresh(case.inputs), labels).backward()
    optimizer.step()
    fresh.zero_grad(set_to_none=True)
    weights = [name for name in before if name.endswith("weight") and "norm" not in name]
    assert all(not torch.equal(before[name], attentions[name]) for name in weights)


def test_float64_agrees_with_float32(case: Case) -> None:
    single = case.model(case.inputs).detach()
    double = case.model.double()
    inputs = case.inputs.double() if isinstance(case.inputs, torch.Tensor) else case.inputs
    try:
        with torch.no_grad():
            assert_close(single.double(), double(inputs))
    finally:
        case.model.float()


def test_counted_flops_are_those_that_run(case: Case) -> None:
    one = case.inputs[:1] if isinstance(case.inputs, torch.Tensor) else None
    if one is None or case.model.stem.example(1).shape != one.shape:
        one = case.model.stem.example(1)
    with frozen(case.model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        case.model(one)
    assert count_cost(case.model).flops == counter.get_total_flops()


def test_parameters_are_the_library_s(case: Case) -> None:
    assert count_parameters(case.model) == case.parameters(case.library)


def test_an_input_s_result_does_not_depend_on_its_batch(case: Case) -> None:
    whole = case.reference()
    with torch.no_grad():
        for row in range(whole.shape[0]):
            if isinstance(case.inputs, torch.Tensor):
                one = case.inputs[row : row + 1]
            else:
                one = {name: tensor[row : row + 1] for name, tensor in case.inputs.items()}
            assert_close(case.model(one), whole[row : row + 1])
