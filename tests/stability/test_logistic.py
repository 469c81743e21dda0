"""Theorem 3-IPW: its ingredients against dense grids and random laws, and trimming."""

import math

import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.special import expit

from dp2erm_cvx.stability import logistic_propensity, overlap_constant
from dp2erm_cvx.stability.logistic import largest_margin, logistic_diameter, logistic_law_change
from tests.stability.movement import INF, Pair, ipw, solved


@pytest.mark.parametrize("ridge", [1e-8, 0.01, 0.1, 0.16, 0.18, 1.0, 100.0, 1e8])
def test_margin_is_the_largest_with_room_in_the_optimality_condition(ridge):
    margin = largest_margin(ridge)
    s = np.linspace(-5.0, 5.0, 200_001)

    def room(m):
        inside = s[np.abs(s) <= m]
        return np.max(np.append(inside * expit(-inside), m * expit(-m) if m < 1.278 else 0.0)) - ridge * m**2

    assert room(margin * (1 + 1e-6)) < 0 < room(margin * (1 - 1e-6))


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.0, 2.0, 5.0, 15.0, 200.0])
def test_logistic_diameter_against_the_whole_set(margin):
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 1441), np.linspace(0, 1, 81))
    t, u = radius * np.cos(angle), radius * np.sin(angle)
    share = expit(-margin * t)
    points = np.column_stack([(share * t).ravel(), (share * u).ravel()])
    hull = points[ConvexHull(points).vertices]
    diameter = np.sqrt(((hull[:, None] - hull[None]) ** 2).sum(-1)).max()
    assert diameter <= logistic_diameter(margin)
    assert logistic_diameter(margin) == pytest.approx(diameter, rel=1e-4)


@pytest.mark.parametrize("n", [4, 400, 10**6])
@pytest.mark.parametrize("ridge", [0.003, 0.05, 0.3, 1.0, 10.0])
def test_law_change_against_closed_form_and_dense_grid(n, ridge):
    margin, constant = largest_margin(ridge), 3.0
    change = logistic_law_change(n, ridge, margin, constant)
    D, C = logistic_diameter(margin), constant * n / (n - 1)
    closed = (
        D**2 / (2 * (ridge + D**2 / (4 * C))) if ridge >= D**2 / (4 * C) else math.sqrt(C / ridge) * D / 2
    )
    assert change <= closed / n * (1 + 1e-12)
    delta = np.linspace(0, min(D / (n * ridge), 2 * margin), 200_001)
    curve = np.sqrt(C * np.maximum(0, D * delta / n - ridge * delta**2))
    dense = np.max(np.minimum(2 * np.tanh(D * delta / 4), curve))
    assert dense <= change * (1 + 1e-12)
    assert change == pytest.approx(dense, rel=1e-4)


@pytest.mark.parametrize(("n", "ridge", "radius"), [(4, 0.003, 2.0), (400, 0.1, INF), (400, 1.0, 2.0)])
def test_a_cap_below_every_weight_makes_them_equal(n, ridge, radius):
    lowest = 1 + math.exp(-min(radius, largest_margin(ridge)))
    assert pytest.approx(2.0) == logistic_propensity(n, 1.0, ridge, radius, lowest * (1 - 1e-6)).V


def test_bounded_in_n_and_of_order_root_ridge():
    few, many = (logistic_propensity(n, 1.0, 0.01, 1.0).V for n in (1000, 10**7))
    assert pytest.approx(few, rel=0.02) == many
    small, large = logistic_propensity(10**6, 1.0, 1e-6, 1.0).V, logistic_propensity(10**6, 1.0, 1e-4, 1.0).V
    assert small / large == pytest.approx(10.0, rel=0.05)


def interval(margin):
    return 1 + math.exp(-margin), 1 + math.exp(margin)


@pytest.mark.parametrize(
    ("low", "high"),
    [interval(0.5), interval(1.0), interval(2.0), interval(6.0), (1.02, 5.0), (1.0, 1.3), (1.0, 20.0)],
)
def test_overlap_constant_against_a_dense_grid(low, high):
    axis = np.linspace(0, 1, 151)
    Q, alpha, beta = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)
    g = [f * (f - 1) for f in (low, high)]
    second = Q * (1 - Q) ** 2 * (g[0] + alpha * (g[1] - g[0])) + (1 - Q) * Q**2 * (
        g[0] + beta * (g[1] - g[0])
    )
    mean = Q * alpha + (1 - Q) * beta
    dense = np.max(4 * second * ((1 - mean) / low + mean / high))
    assert dense <= overlap_constant(low, high) <= dense * 1.002


def test_overlap_constant_against_random_laws():
    # laws with interior atoms: the reduction to two end points is not assumed here
    rng = np.random.default_rng(5)
    for _ in range(600):
        low = 1 + rng.uniform(0, 1)
        high = low + rng.exponential(3)
        f = rng.uniform(low, high, 6)
        q = rng.dirichlet(np.full(6, 0.5))
        in_A = rng.integers(0, 2, 6).astype(bool)
        c = np.where(in_A, 1 - q[in_A].sum(), -q[in_A].sum())
        assert 4 * (q @ (f * (f - 1) * c**2)) * (q @ (1 / f)) <= overlap_constant(low, high)


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
