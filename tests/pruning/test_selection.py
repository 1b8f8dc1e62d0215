"""Which heads stay: counts, fractions, ties, global ranking, trunk, and members that must differ."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compress.errors import UsageError
from compress.pruning.options import Prune
from compress.pruning.overlap import jaccard, largest_overlap, limit_overlap, smallest_overlap
from compress.pruning.scores import HeadScores, normalised
from compress.pruning.selection import heads_to_keep, select, strongest, strongest_of_all


def scores(samples: int = 40, layers: int = 4, heads: int = 6, method: str = "taylor", seed: int = 0) -> HeadScores:
    generator = torch.Generator().manual_seed(seed)
    return HeadScores(tuple(torch.rand(samples, heads, generator=generator) for _ in range(layers)), method, "model")


@pytest.mark.parametrize(
    ("keep", "available", "expected"), [(3, 4, 3), (1.0, 4, 4), (0.5, 3, 2), (0.33, 12, 4), (0.01, 12, 1), (1, 1, 1)]
)
def test_counts_and_fractions(keep: int | float, available: int, expected: int) -> None:
    assert heads_to_keep(keep, available) == expected


def test_more_heads_than_there_are_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"cannot keep 7 of 6 heads.*at most 6"):
        select(scores(), Prune(keep=7))


def test_ties_go_to_the_lowest_head() -> None:
    assert strongest(torch.tensor([1.0, 2.0, 2.0, 2.0]), 2) == [1, 2]
    assert strongest_of_all([torch.ones(3), torch.ones(3)], 2) == [{0, 1, 2}, {0}]


def test_nan_is_refused_before_it_could_rank_first() -> None:
    with pytest.raises(Exception, match="layer 1, head slot 2 is not finite"):
        HeadScores((torch.ones(2, 4), torch.tensor([[1.0, 1.0, float("nan"), 1.0]])), "taylor", "model")


def test_a_global_ranking_leaves_every_layer_its_best_head() -> None:
    importance = [torch.tensor([9.0, 8.0, 7.0, 6.0]), torch.tensor([0.1, 0.3, 0.2, 0.0])]
    assert strongest_of_all(importance, 0.5) == [{0, 1, 2}, {1}]
    assert strongest_of_all(importance, 0.01) == [{0}, {1}]


def test_normalisation_makes_layers_compare() -> None:
    own = normalised([torch.tensor([3.0, 4.0]), torch.tensor([300.0, 400.0]), torch.zeros(2)])
    torch.testing.assert_close(own[0], own[1])
    assert not own[2].any()


def test_the_trunk_is_shared_and_may_keep_more() -> None:
    chosen = select(scores(), Prune(keep=2, branch_layer=2, trunk_keep=5, members=3))
    assert len({member[:2] for member in chosen.slots}) == 1
    assert [len(heads) for heads in chosen.slots[0]] == [5, 5, 2, 2]


def test_members_see_their_own_bootstraps_repeatably() -> None:
    chosen = [select(scores(samples=5), Prune(keep=3, members=3, seed=seed)).slots for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(set(chosen[0])) > 1


def test_one_member_sees_the_whole_calibration_set() -> None:
    own = scores()
    kept = select(own, Prune(keep=2, members=1, seed=3)).slots[0]
    assert kept == tuple(tuple(strongest(layer, 2)) for layer in own.mean())


def test_the_ranking_does_not_hang_on_the_order_in_which_a_machine_sums() -> None:
    own = scores(samples=4001, layers=2)
    other = HeadScores(tuple(layer.flip(0) for layer in own.samples), own.method, own.model)
    assert all(torch.equal(one, two) for one, two in zip(own.mean(), other.mean(), strict=True))
    assert all(torch.equal(one, two) for one, two in zip(normalised(own.mean()), normalised(other.mean()), strict=True))


@pytest.mark.parametrize("branch", [4, 5])
def test_a_branch_layer_that_leaves_nothing_to_differ_is_an_error(branch: int) -> None:
    with pytest.raises(UsageError, match=r"branch layer \d leaves no layer.*choose 0 to 3"):
        select(scores(), Prune(branch_layer=branch, keep=2))


@pytest.mark.parametrize("method", ["taylor", "magnitude"])
def test_overlap_is_bounded_from_the_branch_layer_on(method: str) -> None:
    own = scores(samples=1 if method == "magnitude" else 30, method=method)
    free = select(own, Prune(keep=2, branch_layer=1, method=method))
    bound = select(own, Prune(keep=2, branch_layer=1, method=method, max_overlap=0.2))
    assert max(free.overlap[a][b] for a, b in combinations(range(3), 2)) > 0.2
    assert max(bound.overlap[a][b] for a, b in combinations(range(3), 2)) <= 0.2
    assert bound.importance_lost_to_overlap > 0
    assert free.importance_lost_to_overlap == 0
    branches = [[set(heads) for heads in member[1:]] for member in bound.slots]
    assert bound.overlap[0][1] == jaccard(branches[0], branches[1])


def test_an_impossible_bound_is_refused_with_the_smallest_found() -> None:
    # 3 members with 4 of 6 heads: two of them share at least 2 heads a layer, 2 / 6 each.
    with pytest.raises(UsageError, match=r"at most 0\.1 cannot be chosen; the smallest overlap possible is 0\.333"):
        select(scores(), Prune(keep=4, max_overlap=0.1))
    # 3 members with 2 of 4 heads in one layer: 0.2 on average is possible, but a pair that shares a head has 1 / 3.
    importance = [[torch.tensor([1.0, 0.9, 0.5, 0.1])]] * 3
    with pytest.raises(UsageError, match="smallest overlap found is"):
        limit_overlap([[{0, 1}]] * 3, importance, 0.25)


def test_the_smallest_overlap_is_counted_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_search(*arguments: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("compress.pruning.overlap._useful", no_search)
    importance = [[torch.rand(12)] * 6] * 200
    with pytest.raises(UsageError, match=r"the smallest overlap possible is 0\.04"):
        limit_overlap([[{0}] * 6] * 200, importance, 0.0)


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (1, 3), (2, 2, 2), (1, 2, 3)])
def test_no_choice_overlaps_less_than_is_counted(counts: tuple[int, ...]) -> None:
    choices = [[set(heads) for heads in combinations(range(4), count)] for count in counts]
    least = min(largest_overlap([[heads] for heads in chosen]) for chosen in product(*choices))
    assert smallest_overlap([[chosen[0]] for chosen in choices], [4]) <= least + 1e-9


@settings(deadline=None, max_examples=60)
@given(
    members=st.integers(2, 4),
    layers=st.integers(1, 4),
    heads=st.integers(2, 8),
    keep=st.integers(1, 8),
    bound=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_met_bound_holds_for_every_pair_and_keeps_the_counts(
    members: int, layers: int, heads: int, keep: int, bound: float, seed: int
) -> None:
    keep = min(keep, heads)
    generator = torch.Generator().manual_seed(seed)
    importance = [[torch.rand(heads, generator=generator) for _ in range(layers)] for _ in range(members)]
    start = [[set(strongest(own, keep)) for own in member] for member in importance]
    try:
        found = limit_overlap(start, importance, bound)
    except UsageError:
        assert bound < 1
        return
    assert largest_overlap(found) <= bound
    assert all(len(own) == keep for member in found for own in member)


def test_the_exchange_gives_up_the_least_importance() -> None:
    importance = [[torch.tensor([1.0, 0.9, 0.5, 0.1])], [torch.tensor([1.0, 0.8, 0.7, 0.1])]]
    start = [[{0, 1}], [{0, 1}]]
    found = limit_overlap(start, importance, 1 / 3)
    pairs = [set(pair) for pair in combinations(range(4), 2)]
    lost = {
        (tuple(a), tuple(b)): 3.7 - float(importance[0][0][sorted(a)].sum() + importance[1][0][sorted(b)].sum())
        for a, b in product(pairs, pairs)
        if jaccard([a], [b]) <= 1 / 3
    }
    mine = 3.7 - sum(float(importance[member][0][sorted(found[member][0])].sum()) for member in range(2))
    assert mine == pytest.approx(min(lost.values()), abs=1e-5)
    assert start == [[{0, 1}], [{0, 1}]], "the argument is not changed"
