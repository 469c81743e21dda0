"""Inverse propensities of a logistic regression: C of Theorem 22, trims and orders against closed forms."""

import math

import numpy as np
import pytest

from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.program.curves import LOGISTIC
from dp2erm_cvx.stability import margin_movement, minimizer_norm
from tests.helpers import logistic_propensity
from tests.stability.movement import INF, Pair, ipw, solved


def variance(margin, trim=INF):
    """C of Theorem 22 over margins up to this one."""
    weight = ipw_logistic(trim=trim).log_weight
    result = margin_movement(400, 1e-6, 1.0, LOGISTIC, weight, radius=margin)
    assert result.reach == margin
    return result.variance


@pytest.mark.parametrize(("n", "ridge", "radius"), [(4, 0.003, 2.0), (400, 0.1, INF), (400, 1.0, 2.0)])
def test_a_cap_below_every_weight_makes_them_equal(n, ridge, radius):
    lowest = 1 + math.exp(-minimizer_norm(LOGISTIC, ridge, radius))
    assert pytest.approx(2.0) == logistic_propensity(n, 1.0, ridge, radius, lowest * (1 - 1e-6)).V


def test_bounded_in_n_and_of_order_root_ridge():
    few, many = (logistic_propensity(n, 1.0, 0.01, 1.0).V for n in (1000, 10**7))
    assert pytest.approx(few, rel=0.02) == many
    small, large = logistic_propensity(10**6, 1.0, 1e-6, 1.0).V, logistic_propensity(10**6, 1.0, 1e-4, 1.0).V
    assert small / large == pytest.approx(10.0, rel=0.05)


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0, 6.0])
def test_the_variance_constant_against_a_dense_grid(margin):
    """The weights of its worst law sit on the ends of their interval."""
    axis = np.linspace(0, 1, 151)
    Q, alpha, beta = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)
    low, high = 1 + math.exp(-margin), 1 + math.exp(margin)
    g = [f * (f - 1) for f in (low, high)]
    second = Q * (1 - Q) ** 2 * (g[0] + alpha * (g[1] - g[0])) + (1 - Q) * Q**2 * (
        g[0] + beta * (g[1] - g[0])
    )
    mean = Q * alpha + (1 - Q) * beta
    dense = np.max(4 * second * ((1 - mean) / low + mean / high))
    assert dense <= variance(margin) <= dense * 1.002


@pytest.mark.parametrize("trim", [INF, 2.5])
def test_the_variance_constant_against_random_laws(trim):
    # laws with interior atoms: that the ends are worst is not assumed here
    rng = np.random.default_rng(5)
    for margin in (0.5, 1.0, 2.0, 4.0):
        most = variance(margin, trim)
        for _ in range(200):
            raw = 1 + np.exp(rng.uniform(-margin, margin, 6))
            f, g = np.minimum(raw, trim), np.where(raw < trim, raw * (raw - 1), 0.0)
            q = rng.dirichlet(np.full(6, 0.5))
            in_A = rng.integers(0, 2, 6).astype(bool)
            c = np.where(in_A, 1 - q[in_A].sum(), -q[in_A].sum())
            assert 4 * (q @ (g * c**2)) * (q @ (1 / f)) <= most


def test_weights_reach_their_largest_value():
    # w_max is nearly attained by one record against all others, trimmed or not
    for n, ridge, trim in ((3, 1.1683, INF), (400, 0.1, INF), (400, 0.1, 4.0), (4, 3.1, INF)):
        bound = logistic_propensity(n, 1.0, ridge, trim=trim).w_max
        pairs = [
            Pair.of([((1, z, 0.0), n - 1)], (1, -u, 0.0), (0, 0.0, 0.0))
            for z in (1.0, 0.9)
            for u in np.linspace(0.0, 1.0, 21)
        ]
        seen = max(solved(ipw(ridge, trim=trim), pair)[1][-1] for pair in pairs)
        assert seen <= bound
        assert seen >= 0.97 * bound
