"""Weights on the grid: the sum is exactly n, whatever was computed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dp2erm_cvx.model.sums import weights_on_grid

ANYTHING = hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(allow_nan=True, allow_infinity=True))


@settings(max_examples=500)
@given(ANYTHING)
def test_the_sum_is_exactly_n_for_any_vector(values) -> None:
    found, distance = weights_on_grid(values)
    assert np.all(found >= 0)
    assert sum(map(Fraction, found)) == len(values)
    assert np.all(found * 2.0**30 == np.rint(found * 2.0**30))
    if np.all(np.isfinite(values)):
        moved = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(found, values, strict=True))
        assert not distance < moved


@pytest.mark.parametrize("n", [2, 3, 400, 40_000])
def test_weights_that_sum_to_n_hardly_move(n) -> None:
    rng = np.random.default_rng(n)
    for concentration in (0.01, 1.0, 100.0):
        w = rng.dirichlet(np.full(n, concentration)) * n
        found, distance = weights_on_grid(w)
        assert np.sum(np.abs(found - w)) <= distance <= 2e-9 * n
        assert np.sum(found) == n


def test_a_vector_without_weight_becomes_uniform() -> None:
    for empty in (np.zeros(7), np.full(7, np.nan), np.full(7, -1.0)):
        found, distance = weights_on_grid(empty)
        assert np.array_equal(found, np.ones(7))
        assert not distance < 7.0
