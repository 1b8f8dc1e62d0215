"""The learning rate over the steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compress.tuning.schedule import Shape, rate_factor


@pytest.mark.parametrize(("shape", "middle"), [("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)])
def test_rises_to_the_peak_and_falls(shape: Shape, middle: float) -> None:
    factors = [rate_factor(step, 110, warmup=10 / 110, shape=shape) for step in range(110)]
    assert factors[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert factors[10] == 1
    assert factors[60] == pytest.approx(middle)


@given(st.integers(1, 200), st.floats(0, 1), st.sampled_from(["cosine", "linear", "constant"]))
def test_is_always_a_positive_share(steps: int, warmup: float, shape: Shape) -> None:
    factors = [rate_factor(step, steps, warmup=warmup, shape=shape) for step in range(steps)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == pytest.approx(1)
