"""Theorems 3, 22 and 23: formulas, constants on grids, degenerate losses, weights at other rows."""

import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import LOGISTIC, Curve, Part
from dp2erm_cvx.curves.log_weights import OVERLAP, LogWeight
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.program import scheme
from dp2erm_cvx.stability import ArmCurves, margin_movement, minimizer_norm, separable, tilt_lemma
from tests.helpers import logistic_diameter, logistic_propensity
from tests.stability.movement import DISK, INF, Pair, ipw, movement, solved


@pytest.mark.parametrize(
    ("n", "ridge", "radius"),
    [(10, 0.5, 1.0), (400, 0.1, 1.0), (10_000, 0.01, 2.0), (10, 0.5, 0.05)],
)
def test_the_bound_is_the_formula_of_theorem_3(n, ridge, radius):
    D_psi, D_h, H = 1.3, 0.7, 0.9
    w_max = n / (1 + (n - 1) * math.exp(-H))
    spread = min(D_h * D_psi / (n * ridge), 2 * H, 2 * radius * D_h)
    V = 2 * w_max + 2 * (n - w_max) * math.tanh(spread / 4)
    bound = separable(n, ridge, D_psi, D_h, H, radius)
    assert bound.V == pytest.approx(V, rel=1e-9)
    assert bound.V == pytest.approx(tilt_lemma(n, spread, w_max), rel=1e-9)
    assert bound.w_max == pytest.approx(w_max, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "ridge", "radius"), [(400, 0.1, 1.0), (400, 1.0, 0.7), (10_000, 0.003, 2.0)]
)
def test_theorem_3_is_no_sharper_than_theorem_22_in_the_logistic_case(n, ridge, radius):
    D = logistic_diameter(radius)
    sharp = logistic_propensity(n, 1.0, ridge, radius)
    assert separable(n, ridge, D, D, radius, radius).V >= sharp.V * (1 - 1e-6)


def test_constants_of_zero_and_infinity_give_the_least_and_the_trivial_bound():
    # no movement of the coefficient, or no dependence of the weights on it
    assert separable(50, 1.0, 0.0, 1.0, 0.0).V == pytest.approx(2.0)
    assert separable(50, 1.0, 1.0, 0.0, INF).V == 100.0
    assert separable(50, 1e-300, 1.0, 1.0, 1.0).V <= 100.0
    still = separable(50, 1.0, 0, 0, 0.3)
    assert still.V == pytest.approx(2 * still.w_max)


def test_a_weight_beyond_floating_point_may_be_the_only_one():
    # flat up to a margin of .2: of rows of .49 and one of 1, that one has all the weight
    steep = LogWeight("sum", (LogWeight(), LogWeight("constant", number=-0.2))).times(-3e6)
    weight = LogWeight("minimum", (LogWeight().times(-0.01), steep)).times(-1.0)
    result = margin_movement(10**6, 1.0, 1.0, (ArmCurves(LOGISTIC, weight),))
    assert (result.largest, result.bound.w_max, result.bound.V) == (1e6, 1e6, 2e6)


def test_a_slope_beyond_floating_point_bounds_no_weight():
    # of rows of 0 and one of 1 that one has 60 of 100: its margin is 5
    steep = Curve((Part(1.0, atom("exp"), -1e6), Part(1.0, atom("line"), -0.5)))
    result = margin_movement(100, 1e-3, 1.0, (ArmCurves(steep, LogWeight()),), radius=10.0)
    assert min(result.largest, result.bound.w_max) > 100 * math.exp(5) / (99 + math.exp(5))


MATCHING = LogWeight("minimum", (LogWeight().times(-1.0), LogWeight("constant", number=0.0)))


def test_units_of_the_rows_change_nothing():
    small = margin_movement(300, 0.05, 1.0, (ArmCurves(LOGISTIC, OVERLAP),)).bound
    large = margin_movement(300, 0.05 * 9.0, 3.0, (ArmCurves(LOGISTIC, OVERLAP),)).bound
    assert large.V == pytest.approx(small.V, rel=1e-12)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_weights_that_are_linear_in_the_margin_move(radius):
    @scheme.separable(ridge=0.01, radius=radius)
    def linear(s):
        return cp.logistic(-s), cp.log(1 + 0.45 * s)

    bound = linear().stability(Universe(DISK, 100, 2))
    pair = Pair.of([((1, 1, 0), 50), ((1, -1, 0), 49)], (1, 1, 0), (1, -1, 0))
    assert movement(linear(), pair) <= bound.V
    # beyond 2 some are 0
    assert (bound.V < 15) if radius < 2 else (bound.V, bound.w_max) == (200, 100)


def test_a_mean_weight_without_the_movement_between_both_ends_is_too_small(monkeypatch):
    """The factor exp(Z L delta / 2) belongs to the mean weight along the way between both
    minimizers.
    """
    right = margin_movement(60, 0.003, 1.0, (ArmCurves(LOGISTIC, OVERLAP),)).bound.V
    monkeypatch.setattr(np, "expm1", lambda x: x)
    margin_movement.cache_clear()
    wrong = margin_movement(60, 0.003, 1.0, (ArmCurves(LOGISTIC, OVERLAP),)).bound.V
    margin_movement.cache_clear()
    assert wrong < right


def test_a_loss_that_is_flat_somewhere_is_bounded_by_theorem_3_alone():
    flat = Curve((Part(1.0, atom("huber", 0.1), 1.0, 1.0),))
    result = margin_movement(200, 1.0, 1.0, (ArmCurves(flat, MATCHING),))
    assert math.isinf(result.variance)
    assert result.bound.V <= 400


def variance(margin, trim=INF):
    """C of Theorem 22 over margins up to this one."""
    weight = ipw_logistic(trim=trim).log_weight
    result = margin_movement(400, 1e-6, 1.0, (ArmCurves(LOGISTIC, weight),), radius=margin)
    assert result.reach == margin
    return result.variance


@pytest.mark.parametrize(
    ("n", "ridge", "radius"), [(4, 0.003, 2.0), (400, 0.1, INF), (400, 1.0, 2.0)]
)
def test_a_cap_below_every_weight_makes_them_equal(n, ridge, radius):
    lowest = 1 + math.exp(-minimizer_norm((ArmCurves(LOGISTIC, OVERLAP),), ridge, radius))
    assert pytest.approx(2.0) == logistic_propensity(n, 1.0, ridge, radius, lowest * (1 - 1e-6)).V


def test_V_is_free_of_n_and_grows_as_the_inverse_root_of_the_ridge():
    few, many = (logistic_propensity(n, 1.0, 0.01, 1.0).V for n in (1000, 10**7))
    assert pytest.approx(few, rel=0.02) == many
    small, large = (
        logistic_propensity(10**6, 1.0, 1e-6, 1.0).V,
        logistic_propensity(10**6, 1.0, 1e-4, 1.0).V,
    )
    assert small / large == pytest.approx(10.0, rel=0.05)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("margin", [0.5, 2.0, 6.0])
def test_the_variance_constant_against_a_dense_grid_and_random_laws(margin):
    """The weights of its worst law sit on the ends of their interval; others have no more."""
    axis = np.linspace(0, 1, 101)
    Q, alpha, beta = np.meshgrid(axis, axis, axis, indexing="ij", sparse=True)
    low, high = 1 + math.exp(-margin), 1 + math.exp(margin)
    g, g_high = (f * (f - 1) for f in (low, high))
    A, B = (g + share * (g_high - g) for share in (alpha, beta))
    mean = Q * alpha + (1 - Q) * beta
    dense = np.max(
        4 * (Q * (1 - Q) ** 2 * A + (1 - Q) * Q**2 * B) * ((1 - mean) / low + mean / high)
    )
    assert dense <= variance(margin) <= dense * 1.003
    rng = np.random.default_rng(5)
    for trim in (INF, 2.5):
        most = variance(margin, trim)
        for _ in range(200):
            raw = 1 + np.exp(rng.uniform(-margin, margin, 6))
            f, g = np.minimum(raw, trim), np.where(raw < trim, raw * (raw - 1), 0.0)
            q, in_A = rng.dirichlet(np.full(6, 0.5)), rng.integers(0, 2, 6).astype(bool)
            c = np.where(in_A, 1 - q[in_A].sum(), -q[in_A].sum())
            assert 4 * (q @ (g * c**2)) * (q @ (1 / f)) <= most


def test_weights_reach_their_largest_value():
    # w_max is nearly attained by one record against all others, trimmed or not
    for n, ridge, trim in ((3, 1.1683, INF), (400, 0.1, INF), (400, 0.1, 4.0), (4, 3.1, INF)):
        bound = logistic_propensity(n, 1.0, ridge, trim=trim).w_max
        pairs = [
            Pair.of([((1, z, 0.0), n - 1)], (1, -u, 0.0), (0, 0.0, 0.0))
            for z in (1.0, 0.9)
            for u in np.linspace(0.0, 1.0, 6)
        ]
        seen = max(solved(ipw(ridge, trim=trim), pair)[1][-1] for pair in pairs)
        assert seen <= bound
        assert seen >= 0.97 * bound
