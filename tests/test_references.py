"""Solutions against other people's code, closed forms and the other forms of the same program."""

from __future__ import annotations

import math
import warnings
from typing import Any

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import (
    Compiled,
    ElasticNet,
    ExponentialModel,
    HardExponentialModel,
    Moments,
    WholeSpace,
)
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests import exact
from tests.helpers import make_records, make_weights

PROGRAMS: dict[str, Any] = dict(programs())


def _direct(instance: Any, variable: str) -> np.ndarray:
    """The declared variable as Clarabel leaves it: no model, no polish, no certificate."""
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # how inaccurate it is, the caller's tolerance says
        compiled.problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return np.asarray(compiled.declaration.variables[variable].value)


def _factors(name: str, records: Any) -> np.ndarray:
    treated = records.a == 1
    if name == "uniform":
        return np.ones(records.n_samples)
    if name == "ipw_randomized":
        return np.minimum(np.where(treated, 1 / 0.2, 1 / 0.8), 4.0)
    score = records.X @ np.array([0.1, 1.0, -0.5, 0.0])
    propensity = 1 / (1 + np.exp(-score))
    return np.minimum(1 / np.where(treated, propensity, 1 - propensity), 3.0)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("uniform", {}),
        ("ipw_randomized", {"propensity": 0.2, "trim": 4.0}),
        ("ipw_known", {"coefficient": (0.1, 1.0, -0.5, 0.0), "trim": 3.0}),
    ],
)
def test_closed_form_weights(name, settings):
    records = make_records(50, 3)
    factors = _factors(name, records)
    instance = PROGRAMS[name](**settings).instance(records)
    expected = factors * 50 / math.fsum(factors)
    np.testing.assert_allclose(solve(instance).value, expected, rtol=1e-13)
    np.testing.assert_allclose(_direct(instance, "weights"), expected, rtol=1e-7)


def test_unregularized_ipw_is_an_unpenalized_logistic_regression():
    records = make_records(400, 5)
    fit = LogisticRegression(
        C=np.inf, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky"
    )
    fit.fit(records.X, records.a)
    solution = solve(PROGRAMS["ipw_logistic"](ridge=0.0).instance(records))
    np.testing.assert_allclose(solution.point, fit.coef_[0], atol=1e-7)
    propensity = fit.predict_proba(records.X)[np.arange(400), records.a]
    np.testing.assert_allclose(solution.value, (1 / propensity) * 400 / np.sum(1 / propensity), rtol=1e-6)


def test_ridge_ipw_is_a_penalized_logistic_regression():
    records = make_records(400, 5)
    ridge = 0.03
    # scikit-learn minimizes C * loss + |coef|^2 / 2
    fit = LogisticRegression(
        C=1 / (400 * ridge), fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cg"
    )
    fit.fit(records.X, records.a)
    point = solve(PROGRAMS["ipw_logistic"](ridge=ridge).instance(records)).point
    np.testing.assert_allclose(point, fit.coef_[0], atol=1e-7)


@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
@pytest.mark.parametrize("radius", [math.inf, 0.1])
@pytest.mark.parametrize("scaling", ["public", "paper"])
def test_entropy_dual_and_regularized_primal_have_the_same_weights(arm_mass, radius, scaling):
    records = make_records(60, 3)
    settings = {"ridge": 0.02, "radius": radius, "arm_mass": arm_mass, "scaling": scaling}
    dual = solve(PROGRAMS["entropy_balancing"](**settings).instance(records))
    if math.isfinite(radius) and scaling == "public":
        assert np.linalg.norm(dual.point) == pytest.approx(radius, rel=1e-12)
    primal = _direct(PROGRAMS["entropy_balancing_primal"](**settings).instance(records), "weights")
    np.testing.assert_allclose(primal, dual.value, atol=2e-5)


@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
def test_hard_primal_and_flat_dual_have_the_same_weights(arm_mass):
    records = make_records(100, 3)
    hard_program = PROGRAMS["entropy_balancing_hard"](arm_mass=arm_mass)
    hard = solve(hard_program.instance(records))
    flat = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass=arm_mass).instance(records)
    dual = solve(flat, throw=False)
    # the multipliers are not unique, and no strong convexity can be claimed along the flat direction
    assert not dual.certified
    np.testing.assert_allclose(dual.value, hard.value, atol=1e-7)
    np.testing.assert_allclose(_direct(hard_program.instance(records), "weights"), hard.value, atol=1e-7)
    # and the limit of small ridges
    small = solve(
        PROGRAMS["entropy_balancing"](ridge=1e-7, arm_mass=arm_mass).instance(records), tolerance=1e-4
    )
    np.testing.assert_allclose(small.value, hard.value, atol=1e-3)


@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
@pytest.mark.parametrize("arm_mass", ["equal", "proportional"])
def test_hard_entropy_balancing_against_scipy(arm_mass, balance):
    records = make_records(60, 2)
    program = PROGRAMS["entropy_balancing_hard"](arm_mass=arm_mass, balance=balance)
    instance = program.instance(records)
    weights = solve(instance).value
    B, target = program.moments(records)
    found = minimize(
        lambda w: float(np.sum(w * np.log(w))),
        np.ones(60),
        jac=lambda w: np.log(w) + 1,
        method="SLSQP",
        bounds=[(1e-12, None)] * 60,
        constraints={"type": "eq", "fun": lambda w: B.T @ w / 60 - target, "jac": lambda w: B.T / 60},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    np.testing.assert_allclose(weights, found.x, atol=1e-4)
    assert np.linalg.norm(B.T @ weights / 60 - target) < 1e-11
    treated = records.a == 1
    share = 0.5 if arm_mass == "equal" else np.mean(treated)
    assert np.sum(weights[treated]) == pytest.approx(60 * share, rel=1e-11)
    for arm in (treated, ~treated):
        means = np.average(balance(records.covariates)[arm], axis=0, weights=weights[arm])
        np.testing.assert_allclose(means, balance(records.covariates).mean(axis=0), atol=1e-11)


@pytest.mark.parametrize("scaling", ["public", "paper"])
def test_hard_weights_to_fifty_digits(scaling):
    """With the treated constant's multiplier fixed at 0 the dual has one minimizer, at any scaling."""
    records = make_records(30, 2, seed=3)
    program = PROGRAMS["entropy_balancing_hard"](arm_mass="proportional", scaling=scaling)
    rows, target = exact.entropy_rows(program, records)
    flat = len(target) // 2
    kept = [k for k in range(len(target)) if k != flat]
    solution = solve(program.instance(records))
    start = np.zeros(len(kept))
    for _ in range(40):  # damped steps in doubles, to land where the 50-digit Newton method converges
        model = ExponentialModel(
            np.array([[float(b[k]) for k in kept] for b in rows]),
            np.array([float(target[k]) for k in kept]),
            0.0,
            math.inf,
        )
        start = start - 0.5 * np.linalg.solve(model.hessian(start), model.gradient(start))
    _, weights = exact.entropy_dual(
        [[b[k] for k in kept] for b in rows],
        [target[k] for k in kept],
        mp.mpf(0),
        math.inf,
        exact.to_mp(start),
    )
    error = exact.distance(weights, solution.value, 1)
    assert error <= solution.certificate.output_radius
    assert solution.certificate.output_radius <= 30 * 1e-9


def test_proportional_masses_are_the_papers_scaling_by_substitution():
    """lambda_a -> (n_a / n) lambda_a turns the printed dual into the publicly scaled one at ridge 0."""
    records = make_records(80, 3)
    n, treated = 80, int(np.sum(records.a))
    public = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass="proportional")
    paper = PROGRAMS["entropy_balancing"](ridge=0.0, arm_mass="proportional", scaling="paper")
    first = ExponentialModel(*public.moments(records), 0.0, math.inf)
    second = ExponentialModel(*paper.moments(records), 0.0, math.inf)
    bound, constant = public.bounds(records.domain)
    unit = min(treated, n - treated) / n / math.hypot(bound, constant)
    size = np.repeat([n - treated, treated], first.dimension // 2) / n
    rng = np.random.default_rng(0)
    for _ in range(5):
        lam = rng.normal(size=first.dimension)
        np.testing.assert_allclose(first.output(lam), second.output(size * lam / unit), rtol=1e-10)
        assert first.value(lam) == pytest.approx(second.value(size * lam / unit), rel=1e-10, abs=1e-10)
    hard = PROGRAMS["entropy_balancing_hard"]
    one = solve(hard(arm_mass="proportional").instance(records)).value
    other = solve(hard(arm_mass="proportional", scaling="paper").instance(records)).value
    np.testing.assert_allclose(one, other, atol=1e-8)


def test_unreachable_moments_have_their_own_error():
    records = make_records(12, 2)
    far = records.X.copy()
    far[:, 1] = np.where(records.a == 1, 0.9, -0.9)  # neither arm reaches the common mean
    separated = type(records)(far, records.a, records.y, records.domain)
    with pytest.raises(InfeasibleError, match="ridge"):
        solve(PROGRAMS["entropy_balancing_hard"]().instance(separated))
    # inside the span of the records but outside the hull of an arm
    spread = far.copy()
    spread[:, 1] += 0.05 * np.random.default_rng(0).normal(size=12)
    with pytest.raises(InfeasibleError, match="ridge"):
        solve(
            PROGRAMS["entropy_balancing_hard"]().instance(
                type(records)(spread, records.a, records.y, records.domain)
            )
        )
    with pytest.raises(InfeasibleError, match="span"):
        HardExponentialModel(np.ones((4, 2)), np.array([1.0, 2.0]))


@pytest.mark.parametrize("arm", [0, 1])
def test_an_empty_arm_is_infeasible_for_hard_balance_only(arm):
    records = make_records(12, 2)
    empty = type(records)(records.X, np.full(12, arm), records.y, records.domain)
    with pytest.raises(InfeasibleError):
        solve(PROGRAMS["entropy_balancing_hard"]().instance(empty))
    weights = solve(PROGRAMS["entropy_balancing"]().instance(empty)).value
    assert math.fsum(weights) == pytest.approx(12, rel=1e-13)


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
