"""Theorems 22 and 23: known values, attacks by pairs of neighbors, planted errors and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.problems import ipw_logistic as programs
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program.curves import LOGISTIC
from dp2erm_cvx.program.log_weights import INVERSE_PROPENSITY, OVERLAP, LogWeight, Operation
from dp2erm_cvx.stability import logistic_propensity, margin_movement
from dp2erm_cvx.universe import Universe
from tests.plugins.matching import matching
from tests.plugins.tailored import tailored

MATCHING = LogWeight().times(-1.0).at_most(LogWeight(Operation.CONSTANT, number=0.0))


@pytest.mark.parametrize(
    ("n", "ridge", "radius", "V", "w_max"),
    [
        (400, 0.1, math.inf, 14.4, 5.04),
        (400, 0.01, math.inf, 94.6, 25.7),
        (400, 0.01, 2.0, 31.6, 7.3),
        (1000, 0.003, math.inf, 279, 68),
        (4000, 0.01, math.inf, 102.2, 28.7),
        (4000, 0.003, math.inf, 297, 75),
        (40000, 0.001, math.inf, 815, 194),
    ],
)
def test_overlap_weights_move_by_no_more_than_the_inverse_of_their_ridge(n, ridge, radius, V, w_max):
    found = margin_movement(n, ridge, 1.0, LOGISTIC, OVERLAP, radius=radius).bound
    assert 0.98 * V <= found.V <= V
    assert found.w_max <= w_max
    assert "22" in found.theorem


@pytest.mark.parametrize(
    ("n", "ridge", "trim"), [(400, 0.1, math.inf), (4000, 0.1, 10.0), (50, 1.0, math.inf)]
)
def test_inverse_propensities_are_within_a_percent_of_their_own_theorem(n, ridge, trim):
    own = logistic_propensity(n, 1.0, ridge, trim=trim)
    program, clipped = programs.ipw_logistic(ridge=ridge, trim=trim), math.isfinite(trim)
    weight = program.log_weight
    assert weight.is_clipped == clipped
    found = margin_movement(n, ridge, 1.0, LOGISTIC, weight, clipped=clipped)
    assert own.V * (1 - 1e-9) <= found.bound.V <= 1.01 * own.V
    universe = Universe(Domain(1.0, 1.0), n, 3)
    assert program.stability(universe).V <= own.V


def test_units_of_the_rows_change_nothing():
    small = margin_movement(300, 0.05, 1.0, LOGISTIC, OVERLAP).bound
    large = margin_movement(300, 0.05 * 9.0, 3.0, LOGISTIC, OVERLAP).bound
    assert large.V == pytest.approx(small.V, rel=1e-12)


def solved(program, X, a):
    """Weights of the exact minimizer, by Newton steps on plain formulas of the curve."""
    z = (2 * a - 1)[:, None] * X
    n, mu, v = len(a), program.mu, np.zeros(X.shape[1])
    for _ in range(60):
        s = z @ v
        gradient = z.T @ program.loss.slope(s) / n + mu * v
        H = (z * program.loss.curvature(s)[:, None]).T @ z / n + mu * np.eye(len(v))
        v = v - np.linalg.solve(H, gradient)
    assert math.isinf(program.radius) or np.linalg.norm(v) <= program.radius
    h = program.log_weight.log(z @ v)
    f = np.exp(h - np.max(h))
    return n * f / np.sum(f)


def largest_movement(program, n, pairs, seed):
    """Largest V over pairs of clustered datasets of unit rows that differ in their first record."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(pairs):
        share, angle = rng.uniform(0.02, 0.5), rng.uniform(0.0, np.pi)
        near, far = np.array([1.0, 0.0]), np.array([np.cos(angle), np.sin(angle)])
        few = rng.random(n) < share
        z = np.where(few[:, None], far, near) * rng.choice([0.3, 1.0, 1.0])
        first, second = (sign * (far if rng.random() < 0.5 else near) for sign in rng.choice([-1.0, 1.0], 2))
        ones = np.ones(n, dtype=np.int64)
        w, u = (solved(program, np.vstack([row, z[1:]]), ones) for row in (first, second))
        worst = max(worst, float(np.sum(np.abs(w - u)) + 2 * min(w[0], u[0])))
    return worst


ATTACKED = {
    "overlap, ridge .1": (overlap(ridge=0.1), 40),
    "overlap, ridge .01": (overlap(ridge=0.01), 60),
    "matching": (matching(ridge=0.1, radius=math.inf), 40),
    "tailored": (tailored(ridge=0.5, radius=math.inf), 40),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_no_pair_of_neighbors_moves_weights_beyond_the_bound(name):
    program, n = ATTACKED[name]
    universe = Universe(Domain(1.0, 1.0), n, 2)
    bound = program.stability(universe).V
    worst = largest_movement(program.resolve(universe.domain), n, 150, seed=5)
    assert 0.25 * bound < worst <= bound


def test_a_mean_weight_without_the_movement_between_both_ends_is_too_small(monkeypatch):
    """The factor exp(Z L delta / 2) belongs to the mean weight along the way between both minimizers."""
    right = margin_movement(60, 0.003, 1.0, LOGISTIC, OVERLAP).bound.V
    monkeypatch.setattr(np, "expm1", lambda x: x)
    margin_movement.cache_clear()
    wrong = margin_movement(60, 0.003, 1.0, LOGISTIC, OVERLAP).bound.V
    margin_movement.cache_clear()
    assert wrong < right


def test_where_the_loss_is_flat_theorem_3_is_left():
    from dp2erm_cvx.program.atoms import Huber
    from dp2erm_cvx.program.curves import Curve, Part

    flat = Curve((Part(1.0, Huber(0.1), 1.0, 1.0),))
    found = margin_movement(200, 1.0, 1.0, flat, MATCHING, clipped=True)
    assert math.isinf(found.variance)
    assert found.bound.V <= 400


def test_weights_read_at_other_rows_have_theorem_3_alone():
    elsewhere = type(
        "Elsewhere",
        (overlap,),
        {"weight_rows": lambda self, records: records.X[:, ::-1], "name": "elsewhere"},
    )
    universe = Universe(Domain(1.0, 1.0), 400, 3)
    own, other = overlap(ridge=0.01).stability(universe), elsewhere(ridge=0.01).stability(universe)
    assert "Theorem 3" in other.theorem
    assert other.V > 2 * own.V


def test_no_theorem_without_a_ridge():
    from dp2erm_cvx.errors import CalibrationError

    with pytest.raises(CalibrationError, match="ridge = 0"):
        margin_movement(100, 0.0, 1.0, LOGISTIC, INVERSE_PROPENSITY)
