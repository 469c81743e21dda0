"""Second stages against other people's regressions and closed forms."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.program import WholeSpace, second_stage
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.helpers import make_records, make_weights

PROGRAMS: dict[str, Any] = dict(programs())


@pytest.mark.parametrize("l2", [0.0, 0.4])
def test_second_stage_without_bounds_is_ridge_regression(l2):
    records = make_records(200, 4)
    weights, gamma = make_weights(records), 0.02
    noise = np.random.default_rng(3).normal(size=5)
    itr = PROGRAMS["itr"](theta_set=WholeSpace(), regularizer=ElasticNet(l2=l2))
    z = 2 * (2 * records.a - 1) * records.y
    root = np.sqrt(weights)[:, None]
    # |sqrt(w)(z - X theta)|^2 + n (gamma + l2)/2 |theta|^2 + b'theta as one least-squares problem
    penalty = np.sqrt(200 * (gamma + l2) / 2)
    stacked = np.vstack([root * records.X, penalty * np.eye(5)])
    for b in (np.zeros(5), noise):
        expected = np.linalg.lstsq(stacked, np.concatenate([root[:, 0] * z, -b / (2 * penalty)]), rcond=None)[
            0
        ]
        found = solve(itr.instance(records, weights, gamma=gamma, noise=b)).value
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_second_stage_with_l1_is_the_lasso():
    from sklearn.linear_model import Lasso

    records = make_records(200, 4)
    z = 2 * (2 * records.a - 1) * records.y
    itr = PROGRAMS["itr"](theta_set=WholeSpace(), regularizer=ElasticNet(l1=0.5))
    found = solve(itr.instance(records, np.ones(200), gamma=1e-9)).value
    # scikit-learn minimizes |z - X theta|^2 / (2n) + alpha |theta|_1
    lasso = Lasso(alpha=0.25, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(records.X, z)
    np.testing.assert_allclose(found, lasso.coef_, atol=1e-7)


def test_arm_means_are_the_weighted_arm_means():
    records = make_records(300, 3)
    weights = make_weights(records)
    program = PROGRAMS["arm_means"]()
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    means = [np.average(records.y[records.a == arm], weights=weights[records.a == arm]) for arm in (0, 1)]
    np.testing.assert_allclose(theta, means, atol=1e-8)
    assert program.effect(theta, records.domain, records.covariates[:4]) == pytest.approx(
        [means[1] - means[0]] * 4
    )


def test_plug_in_is_the_weighted_mean_of_the_transformed_outcome():
    records = make_records(300, 3)
    weights, gamma = make_weights(records), 0.1
    program = PROGRAMS["plug_in_ate"]()
    transformed = 2 * (2 * records.a - 1) * records.y
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    assert theta == pytest.approx([np.mean(weights * transformed)], abs=1e-8)
    noise = np.array([3.0])
    shrunk = solve(program.instance(records, weights, gamma=gamma, noise=noise)).value
    assert shrunk == pytest.approx(
        [(2 * np.sum(weights * transformed) - 3.0) / (300 * (2 + gamma))], rel=1e-12
    )


@pytest.mark.parametrize("name", ["itr_huber", "itr_logistic", "itr_saturating", "saturating_regression"])
def test_robust_rules_against_scipy(name):
    records = make_records(120, 3)
    n, gamma, weights, k = 120, 0.05, make_weights(records), 0.8
    noise = np.random.default_rng(6).normal(size=4)
    side = 2 * records.a - 1

    def huber(theta):
        size = np.abs(2 * side * records.y - records.X @ theta)
        return np.where(size <= k, size**2, 2 * k * size - k**2)

    def logistic(theta):
        margin = np.sign(records.y) * side * (records.X @ theta)
        return np.abs(records.y) * np.logaddexp(0, -margin)

    def saturating(theta):
        response = records.y if name == "saturating_regression" else 2 * side * records.y
        size = np.abs(response - records.X @ theta)
        return k * size + k**2 * np.expm1(-size / k)

    loss = {"itr_huber": huber, "itr_logistic": logistic}.get(name, saturating)
    settings = {"itr_huber": {"threshold": k}, "itr_logistic": {}}.get(name, {"slope": k})

    def objective(theta):
        return float(weights @ loss(theta) + n * gamma / 2 * theta @ theta + noise @ theta)

    free = PROGRAMS[name](theta_set=WholeSpace(), **settings)
    theta = solve(free.instance(records, weights, gamma=gamma, noise=noise)).value
    found = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose(theta, found.x, atol=1e-5)
    inside = PROGRAMS[name](theta_set=L2Ball(0.3), **settings)
    theta = solve(inside.instance(records, weights, gamma=gamma, noise=noise)).value
    found = minimize(
        objective,
        np.zeros(4),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda t: 0.09 - t @ t},
        options={"ftol": 1e-14, "maxiter": 300},
    )
    np.testing.assert_allclose(theta, found.x, atol=1e-5)


def test_regression_is_weighted_least_squares():
    records = make_records(200, 4)
    weights = make_weights(records)
    fit = LinearRegression(fit_intercept=False).fit(records.X, records.y, sample_weight=weights)
    program = PROGRAMS["regression"](theta_set=WholeSpace())
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    np.testing.assert_allclose(theta, fit.coef_, atol=1e-8)


def test_cells_are_within_their_number_and_effects_are_contrasts():
    @second_stage(coordinates=("a", "b", "c"))
    def cells(theta, records):
        """Cells of which some are none: a place beyond the last, and an error, which counts as 0."""
        rows = records.cells("cell", lambda x, a, y: 9 * a if x[0] > 0 else 1 / 0, 3)
        return cp.Problem(cp.Minimize(cp.sum_squares(rows @ theta - records.y)), [cp.abs(theta) <= 1])

    domain, X = Domain(1.0, 1.0), np.array([[0.5], [-0.5]])
    program = cells().resolve(domain)
    assert np.array_equal(program.rows(domain.records(X, [1, 1], [0, 0])).Z, np.eye(3)[[2, 0]])
    assert program.effect(np.array([1.0, 2.0, 4.0]), domain, X).tolist() == [3.0, 0.0]
