"""Which samples make which forward pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compress.tuning.order import Order
from compress.tuning.seeds import derived_seed, generator

ORDERS = st.builds(
    Order,
    samples=st.integers(1, 40),
    batch_size=st.integers(1, 12),
    accumulate=st.integers(1, 4),
    seed=st.integers(0, 3),
)


@given(ORDERS)
def test_every_epoch_sees_every_sample_once(order: Order) -> None:
    for epoch in range(2):
        passes = range(epoch * order.passes_per_epoch, (epoch + 1) * order.passes_per_epoch)
        seen = [index for number in passes for index in order.indices(number)]
        assert sorted(seen) == list(range(order.samples))


@given(ORDERS)
def test_steps_are_whole_groups_of_passes_and_know_their_samples(order: Order) -> None:
    assert order.first_pass(0) == 0
    for step in range(2 * order.steps_per_epoch):
        passes = range(order.first_pass(step), order.first_pass(step) + order.passes(step))
        assert 1 <= len(passes) <= order.accumulate
        samples = sum(len(order.indices(number)) for number in passes)
        assert all(order.samples_of_step(number) == samples for number in passes)
        assert order.samples_before(step + 1) - order.samples_before(step) == samples
    assert order.first_pass(2 * order.steps_per_epoch) == 2 * order.passes_per_epoch


def test_epochs_and_seeds_differ_and_repeat() -> None:
    order = Order(samples=50, batch_size=50, accumulate=1, seed=0)
    assert order.indices(0) != order.indices(1)
    assert order.indices(0) != Order(50, 50, 1, seed=1).indices(0)
    assert order.indices(1) == Order(50, 50, 1, seed=0).indices(1)


def test_streams_of_two_purposes_are_unrelated() -> None:
    assert derived_seed(0, "order", 1) != derived_seed(0, "augment", 1)
    assert derived_seed(0, "order", 1) != derived_seed(0, "order", 2)
    assert generator(3, "x").initial_seed() == generator(3, "x").initial_seed()
