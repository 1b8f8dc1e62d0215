"""The one attention against a float64 reference, and its groups, masks, gates and pooled tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from compress.attention.attention import Attention, pooled_tokens

WIDTH, HEAD_WIDTH, HEADS = 10, 3, 4


def random_attention(kept: list[tuple[int, ...]], *, causal: bool = False, seed: int = 0) -> Attention:
    module = Attention(WIDTH, HEAD_WIDTH, kept, original_heads=HEADS, causal=causal)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        for group, heads in enumerate(kept):  # what surgery leaves in the padding
            empty = slice(len(heads), module.slots)
            module.qkv.weight[group].view(3, module.slots, HEAD_WIDTH, WIDTH)[:, empty] = 0
            module.qkv.bias[group].view(3, module.slots, HEAD_WIDTH)[:, empty] = 0
            module.output.weight[group].view(WIDTH, module.slots, HEAD_WIDTH)[:, empty] = 0
    return module.double().eval()


def reference(module: Attention, x: Tensor, mask: Tensor | None = None, gate: Tensor | None = None) -> Tensor:
    """Softmax attention written out, one row and one head after the other."""
    rows_per_group = len(x) // module.groups
    result = torch.zeros_like(x)
    for row, tokens in enumerate(x):
        group = row // rows_per_group
        weight = module.qkv.weight[group].view(3, module.slots, HEAD_WIDTH, WIDTH)
        bias = module.qkv.bias[group].view(3, module.slots, HEAD_WIDTH)
        out = module.output.weight[group].view(WIDTH, module.slots, HEAD_WIDTH)
        for slot in range(len(module.kept_heads[group])):
            q, k, v = (tokens @ weight[part, slot].T + bias[part, slot] for part in range(3))
            scores = q @ k.T / HEAD_WIDTH**0.5
            allowed = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
            if module.causal:
                allowed = allowed.tril()
            if mask is not None:
                allowed = allowed & mask[row]
            weights = torch.exp(scores - scores.max()) * allowed
            total = weights.sum(-1, keepdim=True)
            context = torch.where(total > 0, weights / total.clamp_min(1e-300), 0.0) @ v
            scale = 1.0 if gate is None else gate[row, slot]
            result[row] += scale * context @ out[:, slot].T
        result[row] += module.output.bias[group]
    return result


@settings(deadline=None, max_examples=40)
@given(
    kept=st.lists(
        st.sets(st.integers(0, HEADS - 1), min_size=1).map(lambda heads: tuple(sorted(heads))), min_size=1, max_size=3
    ),
    batch=st.integers(1, 3),
    tokens=st.integers(1, 6),
    causal=st.booleans(),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_the_written_out_attention(
    kept: list[tuple[int, ...]], batch: int, tokens: int, causal: bool, masked: bool, seed: int
) -> None:
    module = random_attention(kept, causal=causal, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    rows = len(kept) * batch
    x = torch.randn(rows, tokens, WIDTH, generator=generator, dtype=torch.float64)
    gate = torch.rand(rows, module.slots, generator=generator, dtype=torch.float64)
    mask = torch.rand(rows, tokens, generator=generator) > 0.4 if masked else None
    torch.testing.assert_close(module(x, mask, gate=gate), reference(module, x, mask, gate), atol=1e-10, rtol=0)
    last = torch.randint(tokens, (rows,), generator=generator)
    for pooled in (1, last):
        expected = pooled_tokens(module(x, mask, gate=gate), pooled)
        torch.testing.assert_close(module(x, mask, gate=gate, pooled=pooled), expected, atol=1e-10, rtol=0)


def test_a_mask_per_pair_of_tokens_equals_the_padding_mask_it_spells_out() -> None:
    module = random_attention([(0, 2, 3)])
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    padding = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
    pairs = padding[:, None, None, :].expand(-1, 1, 5, -1)
    torch.testing.assert_close(module(x, pairs), module(x, padding))
    torch.testing.assert_close(module(x, pairs, pooled=1), module(x, padding)[:, :1])


def test_a_fully_masked_row_is_zero_with_finite_gradients() -> None:
    module = random_attention([(0, 1), (2,)])
    x = torch.randn(4, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(4, 3, dtype=torch.bool)
    mask[1] = False
    y = module(x, mask)
    torch.testing.assert_close(y[1], module.output.bias[0].expand(3, -1))
    y.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in module.parameters())


def test_groups_are_separate_modules_side_by_side() -> None:
    module = random_attention([(0, 1, 3), (2,), (1, 2)])
    x = torch.randn(6, 4, WIDTH, dtype=torch.float64)
    for group, heads in enumerate(module.kept_heads):
        alone = module.with_heads([heads]).double().eval()
        count, slots = len(heads), module.slots
        with torch.no_grad():
            alone.qkv.weight.copy_(module.qkv.weight[group].view(3, slots, -1)[:, :count].reshape_as(alone.qkv.weight))
            alone.qkv.bias.copy_(module.qkv.bias[group].view(3, slots, -1)[:, :count].reshape_as(alone.qkv.bias))
            output = module.output.weight[group].view(WIDTH, slots, -1)[:, :count]
            alone.output.weight.copy_(output.reshape_as(alone.output.weight))
            alone.output.bias.copy_(module.output.bias[group : group + 1])
        rows = slice(2 * group, 2 * group + 2)
        torch.testing.assert_close(module(x)[rows], alone(x[rows]), atol=1e-12, rtol=0)


def test_padding_of_ragged_groups_stays_zero_under_adamw() -> None:
    module = random_attention([(0, 1, 3), (2,)]).train()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(3):
        module(torch.randn(4, 5, WIDTH, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    padding = slice(1, 3)
    assert not module.qkv.weight[1].view(3, 3, -1)[:, padding].any()
    assert not module.output.weight[1].view(WIDTH, 3, HEAD_WIDTH)[:, padding].any()
    assert module.qkv.weight[1].view(3, 3, -1)[:, :1].any()


def test_train_and_eval_agree_without_dropout() -> None:
    module = random_attention([(0, 1, 2, 3)])
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        frozen = module(x)
    assert torch.equal(module.train()(x), frozen)


@pytest.mark.parametrize("pooled", [1, 2])
def test_only_asking_tokens_come_back(pooled: int) -> None:
    assert random_attention([(0,)])(torch.randn(1, 4, WIDTH, dtype=torch.float64), pooled=pooled).shape == (
        1,
        pooled,
        WIDTH,
    )
