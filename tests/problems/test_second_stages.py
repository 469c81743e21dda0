"""Second stages against other people's regressions and closed forms."""

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.helpers import make_records, make_weights

PROGRAMS: dict[str, Any] = dict(programs())


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


def test_regression_is_weighted_least_squares():
    records = make_records(200, 4)
    weights = make_weights(records)
    fit = LinearRegression(fit_intercept=False).fit(records.X, records.y, sample_weight=weights)
    program = PROGRAMS["regression"](theta_set=WholeSpace())
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    np.testing.assert_allclose(theta, fit.coef_, atol=1e-8)
