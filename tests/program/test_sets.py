"""Projections, proximal maps and their Jacobians against CVXPY and differences; weights on the grid."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import weights_on_grid
from dp2erm_cvx.program import Box, L1Ball, WholeSpace

SETS: list[Any] = [WholeSpace(), L2Ball(1.3), L1Ball(0.8), Box(0.6)]
every_set = pytest.mark.parametrize("chosen", SETS, ids=lambda s: type(s).__name__)
vectors = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=6).map(np.array)


@every_set
@pytest.mark.parametrize("l1", [0.0, 0.7])
def test_prox_is_the_declared_minimizer_and_has_its_derivative(chosen, l1):
    rng, penalty, h = np.random.default_rng(0), Penalty(chosen, l1), 1e-7
    for scale in (0.1, 1.0, 3.0, 10.0):
        v, direction, x = scale * rng.normal(size=5), rng.normal(size=5), cp.Variable(5)
        objective = l1 * cp.norm(x, 1) + cp.sum_squares(x - v) / 0.8
        constraints = chosen.constraints(x, *chosen.bounds().values()).values()
        problem = cp.Problem(cp.Minimize(objective), list(constraints))
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        np.testing.assert_allclose(penalty.prox(v, 0.4), x.value, atol=3e-5)
        slope = (penalty.prox(v + h * direction, 0.4) - penalty.prox(v - h * direction, 0.4)) / (2 * h)
        jacobian = penalty.jacobian(v, 0.4)
        np.testing.assert_allclose(jacobian @ direction, slope, atol=1e-6)
        np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-15)
        eigenvalues = np.linalg.eigvalsh(jacobian)
        assert -1e-12 <= eigenvalues[0] <= eigenvalues[-1] <= 1 + 1e-12


@every_set
@settings(max_examples=40)
@given(v=vectors, other=vectors)
def test_projection_is_feasible_idempotent_and_nearest(chosen, v, other):
    inside = chosen.project(v)
    again = chosen.project(inside)
    np.testing.assert_allclose(again, inside, atol=1e-15)
    assert np.linalg.norm(inside) <= chosen.norm_bound(len(v)) * (1 + 1e-15)
    # the variational inequality of a projection
    feasible = chosen.project(np.resize(other, len(v)))
    assert (v - inside) @ (feasible - inside) <= 1e-12


@every_set
@settings(max_examples=30)
@given(v=vectors, w=vectors, l1=st.floats(0, 3), step=st.floats(1e-3, 10))
def test_prox_is_firmly_nonexpansive(chosen, v, w, l1, step):
    penalty = Penalty(chosen, l1)
    other = np.resize(w, len(v))
    first, second = penalty.prox(v, step), penalty.prox(other, step)
    move = first - second
    assert move @ move <= move @ (v - other) + 1e-12


@every_set
def test_norm_bound_is_attained(chosen):
    far = 1e100 * (np.ones(4) if isinstance(chosen, Box) else np.eye(4)[2])
    assert np.linalg.norm(chosen.project(far)) == pytest.approx(min(chosen.norm_bound(4), 1e100), rel=1e-14)


def test_a_set_needs_a_positive_finite_size():
    for kind, size in product((L1Ball, L2Ball, Box), (0.0, -1.0, math.nan, math.inf, "abc", None, True)):
        with pytest.raises(DeclarationError, match="must be"):
            kind(size)


ANYTHING = hnp.arrays(np.float64, st.integers(2, 40), elements=st.floats(allow_nan=True, allow_infinity=True))


@settings(max_examples=500)
@given(ANYTHING)
def test_the_sum_is_exactly_n_for_any_vector(values) -> None:
    result, distance = weights_on_grid(values)
    assert np.all(result >= 0)
    assert sum(map(Fraction, result)) == len(values)
    assert np.all(result * 2.0**30 == np.rint(result * 2.0**30))
    if np.all(np.isfinite(values)):
        moved = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(result, values, strict=True))
        assert not distance < moved


@pytest.mark.parametrize("n", [2, 3, 400, 40_000])
def test_weights_that_sum_to_n_hardly_move_and_none_become_uniform(n) -> None:
    rng = np.random.default_rng(n)
    for concentration in (0.01, 1.0, 100.0):
        w = rng.dirichlet(np.full(n, concentration)) * n
        result, distance = weights_on_grid(w)
        assert np.sum(np.abs(result - w)) <= distance <= 2e-9 * n
        assert np.sum(result) == n
    for empty in (np.zeros(n), np.full(n, np.nan), np.full(n, -1.0)):
        result, distance = weights_on_grid(empty)
        assert np.array_equal(result, np.ones(n))
        assert not distance < n
