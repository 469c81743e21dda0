"""Theorem 3 in general: against the logistic case, and on a scheme of its own."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.stability import logistic_propensity, separable, tilt_lemma
from dp2erm_cvx.stability.logistic import logistic_diameter
from tests.stability.movement import Pair, four_clusters, ipw_weights, lone_record, minimize_in_ball, movement

INF = math.inf


@pytest.mark.parametrize(("n", "ridge", "radius"), [(10, 0.5, 1.0), (400, 0.1, 1.0), (10_000, 0.01, 2.0)])
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
def test_covers_the_logistic_case_and_is_no_sharper_than_its_own_theorem(n, ridge, radius):
    D = logistic_diameter(radius)
    bound = separable(n, ridge, D, D, radius, radius)
    assert bound.V >= logistic_propensity(n, 1.0, ridge, radius).V * (1 - 1e-6)
    fit = ipw_weights(ridge, radius)
    shape = (0.8, 0.8, 0.3, 0.02, 0.4, 0.7, 0.4)
    u = np.array([0.998, 0.058])
    for pair in (four_clusters(n, shape), lone_record(n, u, -u, np.array([-0.59, -0.288]))):
        assert movement(fit, pair) <= bound.V


def ridge_regression_weights(ridge, radius, tilt):
    """psi = (<x, lam> - a)^2 / 2 and h = (1 - 2a) tilt <x, lam>, on points (a, x) with ``||x|| <= 1``."""

    def fit(points, count):
        arm, x, n = points[:, 0], points[:, 1:], count.sum()

        def objective(curvature):
            def at(lam):
                rest = x @ lam - arm
                hessian = (x.T * count) @ x / n + curvature * np.eye(len(lam))
                value = count @ rest**2 / (2 * n) + curvature / 2 * lam @ lam
                return value, (count * rest) @ x / n + curvature * lam, hessian

            return at

        lam = minimize_in_ball(objective, ridge, radius, x.shape[1])
        f = np.exp((1 - 2 * arm) * tilt * (x @ lam))
        return n * f / (count @ f)

    return fit


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
        moved = movement(ridge_regression_weights(ridge, radius, tilt), pair)
        bound = ridge_regression_bound(n, ridge, radius, tilt)
        assert moved <= bound.V
        largest = max(largest, moved / bound.V if bound.V < 2 * n else 0.0)
    assert largest > 0.7


def test_planted_bug_movement_of_the_coefficient_divided_by_n_twice():
    wrong = 0
    for _, n, pair in random_pairs(5, 60):
        ridge, radius, tilt = 0.3, INF, 2.0
        moved = movement(ridge_regression_weights(ridge, radius, tilt), pair)
        r = 1.0 / ridge
        assert moved <= ridge_regression_bound(n, ridge, radius, tilt).V
        kappa_of_records = separable(n, ridge * n, 2 * (1 + r), 2 * tilt, 0.5, r)
        wrong += moved > kappa_of_records.V
    assert wrong > 5


def test_planted_bug_one_weight_of_the_changed_record_lost():
    pair = Pair(np.array([[1.0, 1.0]]), np.array([400.0]), np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    moved = movement(ridge_regression_weights(5.0, INF, 1.0), pair)
    bound = ridge_regression_bound(401, 5.0, INF, 1.0)
    assert bound.V - bound.w_max < moved <= bound.V


def test_degenerate_constants():
    # no movement of the coefficient, or no dependence of the weights on it
    assert separable(50, 1.0, 0.0, 1.0, 0.0).V == pytest.approx(2.0)
    assert separable(50, 1.0, 1.0, 0.0, INF).V == 100.0
    assert separable(50, 1e-300, 1.0, 1.0, 1.0).V <= 100.0
    still = separable(50, 1.0, 0, 0, 0.3)
    assert still.V == pytest.approx(2 * still.w_max)


@pytest.mark.parametrize(
    ("call", "error", "names"),
    [
        (lambda: separable(1, 1.0, 1.0, 1.0, 1.0), DeclarationError, "n = 1"),
        (lambda: separable(10, 0.0, 1.0, 1.0, 1.0), CalibrationError, "ridge = 0"),
        (
            lambda: separable(10, 1.0, -1.0, 1.0, 1.0),
            DeclarationError,
            "gradient_diameter",
        ),
        (
            lambda: separable(10, 1.0, 1.0, INF, 1.0),
            DeclarationError,
            "log_weight_diameter",
        ),
        (
            lambda: separable(10, 1.0, 1.0, 1.0, -1.0),
            DeclarationError,
            "log_weight_range",
        ),
        (lambda: separable(10, 1.0, 1.0, 1.0, 1.0, 0.0), DeclarationError, "radius"),
    ],
)
def test_refusals(call, error, names):
    with pytest.raises(error, match=names) as caught:
        call()
    assert "\n" not in str(caught.value)
