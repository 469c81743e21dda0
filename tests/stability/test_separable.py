"""Theorems 3, 22 and 23: against the logistic case, a scheme of its own, attacks and planted errors."""

import math

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import brentq

from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.curves import INVERSE_PROPENSITY, LOGISTIC, OVERLAP, Curve, LogWeight, Part
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.stability import margin_movement, separable, tilt_lemma
from tests.helpers import logistic_diameter, logistic_propensity
from tests.plugins.literature import matching, tailored
from tests.stability.movement import DISK, INF, Pair, four_clusters, ipw, movement


@pytest.mark.parametrize(
    ("n", "ridge", "radius"), [(10, 0.5, 1.0), (400, 0.1, 1.0), (10_000, 0.01, 2.0), (10, 0.5, 0.05)]
)
def test_formula(n, ridge, radius):
    D_psi, D_h, H = 1.3, 0.7, 0.9
    w_max = n / (1 + (n - 1) * math.exp(-H))
    spread = min(D_h * D_psi / (n * ridge), 2 * H, 2 * radius * D_h)
    V = 2 * w_max + 2 * (n - w_max) * math.tanh(spread / 4)
    bound = separable(n, ridge, D_psi, D_h, H, radius)
    assert bound.V == pytest.approx(V, rel=1e-9)
    assert bound.V == pytest.approx(tilt_lemma(n, spread, w_max), rel=1e-9)
    assert bound.w_max == pytest.approx(w_max, rel=1e-9)


@pytest.mark.parametrize(("n", "ridge", "radius"), [(400, 0.1, 1.0), (400, 1.0, 0.7), (10_000, 0.003, 2.0)])
def test_covers_the_logistic_case_and_is_no_sharper_than_theorem_22(n, ridge, radius):
    D = logistic_diameter(radius)
    bound = separable(n, ridge, D, D, radius, radius)
    assert bound.V >= logistic_propensity(n, 1.0, ridge, radius).V * (1 - 1e-6)
    shape = (0.8, 0.8, 0.3, 0.02, 0.4, 0.7, 0.4)
    alone = Pair.of([((1, 0.998, 0.058), n - 1)], (0, 0.998, 0.058), (1, -0.59, -0.288))
    for pair in (four_clusters(n, shape), alone):
        assert movement(ipw(ridge, radius), pair) <= bound.V


def ridge_regression_movement(ridge, radius, tilt, pair):
    """Of psi = (<x, lam> - a)^2 / 2 and h = (1 - 2a) tilt <x, lam>, on records (a, x) with ``||x|| <= 1``."""
    count, weights = np.append(pair.count, 1.0), []
    for end in (pair.before, pair.after):
        arm, *x = np.vstack([pair.common, end]).T
        x, n = np.stack(x, axis=1), count.sum()
        values, axes = np.linalg.eigh((x.T * count) @ x / n)
        pull = axes.T @ ((count * arm) @ x) / n

        def size(more, values=values, pull=pull):
            return np.linalg.norm(pull / (values + ridge + more)) - radius

        more = brentq(size, 0.0, 1e6, xtol=1e-14) if size(0.0) > 0 else 0.0  # the multiplier of the ball
        f = np.exp((1 - 2 * arm) * tilt * (x @ axes @ (pull / (values + ridge + more))))
        weights.append(n * f / (count @ f))
    w, v = weights
    return float(count @ np.abs(w - v) + 2 * min(w[-1], v[-1]))


def ridge_regression_bound(n, ridge, radius, tilt):
    # over ||lam|| <= r: ||grad psi|| <= 1 + r, ||grad h|| <= tilt, |h| <= tilt r
    r = min(radius, 1.0 / ridge)
    return separable(n, ridge, 2 * (1 + r), 2 * tilt, 2 * tilt * r, r)


def random_pairs(seed, number):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        n = int(rng.integers(2, 30))
        points = np.column_stack([rng.integers(0, 2, n + 1), rng.choice([-1.0, 1.0], n + 1)])
        if rng.random() < 0.3:
            points[: n - 1] = points[0]
        yield rng, n, Pair(points[: n - 1], np.ones(n - 1), points[n - 1], points[n])


def test_a_scheme_of_its_own_stays_below_the_bound():
    largest = 0.0
    for rng, n, pair in random_pairs(3, 400):
        ridge, tilt = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-1, 0.5)
        radius = float(rng.choice([INF, 10 ** rng.uniform(-1, 0)]))
        moved = ridge_regression_movement(ridge, radius, tilt, pair)
        bound = ridge_regression_bound(n, ridge, radius, tilt)
        assert moved <= bound.V
        largest = max(largest, moved / bound.V if bound.V < 2 * n else 0.0)
    assert largest > 0.7


def test_planted_bug_movement_of_the_coefficient_divided_by_n_twice():
    wrong = 0
    for _, n, pair in random_pairs(5, 60):
        ridge, tilt = 0.3, 2.0
        moved = ridge_regression_movement(ridge, INF, tilt, pair)
        r = 1.0 / ridge
        assert moved <= ridge_regression_bound(n, ridge, INF, tilt).V
        wrong += moved > separable(n, ridge * n, 2 * (1 + r), 2 * tilt, 0.5, r).V
    assert wrong > 5


def test_degenerate_constants():
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
    result = margin_movement(10**6, 1.0, 1.0, LOGISTIC, weight)
    assert (result.largest, result.bound.w_max, result.bound.V) == (1e6, 1e6, 2e6)


def test_a_slope_beyond_floating_point_bounds_no_weight():
    # of rows of 0 and one of 1 that one has 60 of 100: its margin is 5
    steep = Curve((Part(1.0, atom("exp"), -1e6), Part(1.0, atom("line"), -0.5)))
    result = margin_movement(100, 1e-3, 1.0, steep, LogWeight(), radius=10.0)
    assert min(result.largest, result.bound.w_max) > 100 * math.exp(5) / (99 + math.exp(5))


MATCHING = LogWeight("minimum", (LogWeight().times(-1.0), LogWeight("constant", number=0.0)))


@pytest.mark.parametrize(
    ("n", "ridge", "radius", "V", "w_max"),
    [
        (400, 0.1, math.inf, 14.4, 5.04),
        (400, 0.01, math.inf, 94.6, 25.7),
        (400, 0.01, 2.0, 31.6, 7.3),
        (1000, 0.003, math.inf, 279, 68),
        (4000, 0.01, math.inf, 102.2, 28.7),
        (4000, 0.003, math.inf, 297, 75),
        (40000, 0.001, math.inf, 800, 194),
    ],
)
def test_overlap_weights_move_by_no_more_than_the_inverse_of_their_ridge(n, ridge, radius, V, w_max):
    result = margin_movement(n, ridge, 1.0, LOGISTIC, OVERLAP, radius=radius).bound
    assert 0.98 * V <= result.V <= V
    assert result.w_max <= w_max
    assert "22" in result.theorem


def test_units_of_the_rows_change_nothing():
    small = margin_movement(300, 0.05, 1.0, LOGISTIC, OVERLAP).bound
    large = margin_movement(300, 0.05 * 9.0, 3.0, LOGISTIC, OVERLAP).bound
    assert large.V == pytest.approx(small.V, rel=1e-12)


def largest_movement(program, n, pairs, seed):
    """Largest V over pairs of clustered datasets of unit rows that differ in their first record."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(pairs):
        share, angle = rng.uniform(0.02, 0.5), rng.uniform(0.0, np.pi)
        near, far = np.array([1.0, 0.0]), np.array([np.cos(angle), np.sin(angle)])
        few = rng.random(n) < share
        z = np.where(few[:, None], far, near) * rng.choice([0.3, 1.0, 1.0])
        ends = (sign * (far if rng.random() < 0.5 else near) for sign in rng.choice([-1.0, 1.0], 2))
        before, after = (np.append(1.0, end) for end in ends)
        pair = Pair(np.column_stack([np.ones(n - 1), z[1:]]), np.ones(n - 1), before, after)
        worst = max(worst, movement(program, pair))
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
    worst = largest_movement(program, n, 30, seed=5)
    assert 0.25 * bound < worst <= bound


@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_weights_that_are_linear_in_the_margin_move(radius):
    @scheme.separable(ridge=0.01, radius=radius)
    def linear(s):
        return cp.logistic(-s), cp.log(1 + 0.45 * s)

    bound = linear().stability(Universe(DISK, 100, 2))
    pair = Pair.of([((1, 1, 0), 50), ((1, -1, 0), 49)], (1, 1, 0), (1, -1, 0))
    assert movement(linear(), pair) <= bound.V
    assert (bound.V < 15) if radius < 2 else (bound.V, bound.w_max) == (200, 100)  # beyond 2 some are 0


def test_a_mean_weight_without_the_movement_between_both_ends_is_too_small(monkeypatch):
    """The factor exp(Z L delta / 2) belongs to the mean weight along the way between both minimizers."""
    right = margin_movement(60, 0.003, 1.0, LOGISTIC, OVERLAP).bound.V
    monkeypatch.setattr(np, "expm1", lambda x: x)
    margin_movement.cache_clear()
    wrong = margin_movement(60, 0.003, 1.0, LOGISTIC, OVERLAP).bound.V
    margin_movement.cache_clear()
    assert wrong < right


def test_where_the_loss_is_flat_theorem_3_is_left():
    flat = Curve((Part(1.0, atom("huber", 0.1), 1.0, 1.0),))
    result = margin_movement(200, 1.0, 1.0, flat, MATCHING)
    assert math.isinf(result.variance)
    assert result.bound.V <= 400


def test_weights_read_at_other_rows_have_theorem_3_alone():
    elsewhere = scheme.separable(ridge=0.1, at_controls=True)(overlap.function)
    universe = Universe(Domain(1.0, 1.0), 400, 3)
    own, other = overlap(ridge=0.01).stability(universe), elsewhere(ridge=0.01).stability(universe)
    assert "Theorem 3" in other.theorem
    assert other.V > 2 * own.V
    with pytest.raises(CalibrationError, match="other rows"):
        elsewhere(ridge=0.01).movement(universe)
    shown = dict(describe(elsewhere(ridge=0.01), universe))
    assert shown["V"].startswith(f"{other.V:.6g}")
    assert "Theorem 22" not in str(shown)


def test_no_theorem_without_a_ridge():
    with pytest.raises(CalibrationError, match="ridge = 0"):
        margin_movement(100, 0.0, 1.0, LOGISTIC, INVERSE_PROPENSITY)
