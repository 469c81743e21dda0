"""Solutions against other people's code, closed forms and the other forms of the same program."""

from __future__ import annotations

import math
import warnings
from typing import Any

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest
from scipy.optimize import least_squares, minimize
from sklearn.linear_model import LinearRegression, LogisticRegression

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program import (
    Compiled,
    ElasticNet,
    ExponentialModel,
    Gaussian,
    HardExponentialModel,
    L2Ball,
    Linear,
    Moments,
    PublicSample,
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


@pytest.mark.parametrize("ridge", [0.0, 0.03])
def test_overlap_weights_are_the_fitted_probabilities_of_the_other_arm(ridge):
    records = make_records(400, 5)
    C = 1 / (400 * ridge) if ridge else np.inf
    fit = LogisticRegression(C=C, fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    other = fit.fit(records.X, records.a).predict_proba(records.X)[np.arange(400), 1 - records.a]
    weights = solve(PROGRAMS["overlap"](ridge=ridge).instance(records)).value
    np.testing.assert_allclose(weights, other * 400 / np.sum(other), rtol=1e-6)


def test_overlap_weights_without_a_ridge_balance_every_mean():
    """Li, Morgan & Zaslavsky (2018), Theorem 3; with a ridge they do not."""
    records = make_records(300, 4)
    treated = records.a == 1
    for ridge, exactly in ((0.0, True), (0.5, False)):
        weights = solve(PROGRAMS["overlap"](ridge=ridge).instance(records)).value
        one, other = (
            np.average(records.covariates[arm], axis=0, weights=weights[arm]) for arm in (treated, ~treated)
        )
        assert np.allclose(one, other, atol=1e-9) is exactly
        assert np.allclose(np.sum(weights[treated]), 150, atol=1e-7) is exactly


@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
def test_tilting_without_a_ridge_brings_either_arm_to_the_whole_sample(balance):
    records = make_records(300, 2)
    program = PROGRAMS["inverse_probability_tilting"](ridge=0.0, radius=2.0, balance=balance)
    solution = solve(program.instance(records))
    assert np.linalg.norm(solution.point) < 1.9  # the ball is not what stopped it
    g = np.column_stack([np.ones(300), balance(records.covariates)])
    factors = np.empty(300)
    constant = program.bounds(records.domain)[1]
    for arm in (0, 1):
        inside = records.a == arm
        half = len(solution.point) // 2
        rows = np.column_stack([np.full(300, constant), balance(records.covariates)])
        factors[inside] = 1 + np.exp(-rows[inside] @ solution.point[arm * half : (arm + 1) * half])
        np.testing.assert_allclose(factors[inside] @ g[inside], g.sum(axis=0), atol=1e-7)
    np.testing.assert_allclose(solution.value, factors * 300 / np.sum(factors), rtol=1e-10)


def _apart(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    distances: np.ndarray = np.linalg.norm(X[:, None] - Y[None, :], axis=2)
    return distances


def _energy(X: np.ndarray, p: np.ndarray, q: np.ndarray) -> float:
    """Energy distance of the laws with masses p and q at the rows of X (Szekely & Rizzo 2013)."""
    D = _apart(X, X)
    return float(2 * p @ D @ q - p @ D @ p - q @ D @ q)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 0.2])
def test_energy_balancing_minimizes_energy_distances(alpha):
    records = make_records(40, 3)
    X, n, ridge = records.covariates, 40, 0.07
    instance = PROGRAMS["energy_balancing"](alpha=alpha, ridge=ridge).instance(records)
    solution = solve(instance)
    arms = [np.where(records.a == arm, 1.0, 0.0) for arm in (0, 1)]
    uniform = np.full(n, 1 / n)

    def objective(v):
        p = [v * arm / n for arm in arms]
        to_sample = _energy(X, p[0], uniform) + _energy(X, p[1], uniform)
        return alpha * to_sample + (1 - alpha) * _energy(X, p[0], p[1]) + ridge / n * float(v @ v)

    rng = np.random.default_rng(0)
    start = sum(arm * n / np.sum(arm) for arm in arms)
    offset = objective(start) - instance.model.value(start) / n**2
    for _ in range(5):
        v = sum(arm * n * (draw := arm * rng.exponential(size=n)) / np.sum(draw) for arm in arms)
        # the kernel leaves out a constant, which no weights change
        assert objective(v) - instance.model.value(v) / n**2 == pytest.approx(offset, abs=1e-12)
    found = minimize(
        objective,
        start,
        method="SLSQP",
        bounds=[(0, None)] * n,
        constraints=[{"type": "eq", "fun": lambda v, arm=arm: v @ arm - n} for arm in arms],
        options={"ftol": 1e-13, "maxiter": 400},
    )
    assert objective(solution.point) <= found.fun + 1e-12
    np.testing.assert_allclose(2 * solution.value, found.x, atol=2e-3)


def _cvxpy(objective: Any, constraints: list[Any], w: cp.Variable) -> np.ndarray:
    cp.Problem(cp.Minimize(objective), constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    return np.asarray(w.value)


@pytest.mark.parametrize("public", [False, True])
def test_kernel_mean_matching_brings_features_to_the_mean_of_the_target(public):
    records = make_records(50, 3)
    ridge, n, feature_bound = 0.04, 50, records.domain.features_bound
    raw = np.random.default_rng(5).uniform(-1, 1, (12, 3))
    settings = {"target": PublicSample(raw)} if public else {}
    program = PROGRAMS["kernel_mean_matching"](kernel=Linear(0.6), ridge=ridge, **settings)
    source = np.arange(n) if public else np.flatnonzero(records.a == 0)
    goal = raw if public else records.covariates[records.a == 1]
    assert np.max(np.linalg.norm(raw, axis=1)) < feature_bound
    # the linear kernel has its own coordinates as features
    phi = np.column_stack([np.full(n, math.sqrt(0.6)), records.covariates])[source]
    mean = np.concatenate([[math.sqrt(0.6)], goal.mean(axis=0)])
    w = cp.Variable(len(source), nonneg=True)
    missed = cp.sum_squares(phi.T @ w - n * mean) + n * ridge * cp.sum_squares(w)
    expected = np.zeros(n)
    expected[source] = _cvxpy(missed, [cp.sum(w) == n], w)
    np.testing.assert_allclose(solve(program.instance(records)).value, expected, atol=1e-6)


def test_kernel_mean_matching_by_a_gaussian_kernel_against_scipy():
    records = make_records(30, 2)
    X, ridge, n = records.covariates, 0.1, 30
    source, goal = np.flatnonzero(records.a == 0), X[records.a == 1]
    K = np.exp(-(_apart(X[source], X[source]) ** 2) / (2 * 0.7**2)) + n * ridge * np.eye(len(source))
    c = n * np.mean(np.exp(-(_apart(X[source], goal) ** 2) / (2 * 0.7**2)), axis=1)
    found = minimize(
        lambda w: float(w @ K @ w - 2 * c @ w),
        np.full(len(source), n / len(source)),
        jac=lambda w: 2 * (K @ w - c),
        method="SLSQP",
        bounds=[(0, None)] * len(source),
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - n, "jac": np.ones_like},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    program = PROGRAMS["kernel_mean_matching"](kernel=Gaussian(0.7), ridge=ridge)
    weights = solve(program.instance(records)).value
    np.testing.assert_allclose(weights[source], found.x, atol=1e-5)
    assert not np.any(weights[records.a == 1])


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_stable_balancing_is_the_quadratic_program_it_states(alpha):
    records = make_records(50, 3)
    balance, ridge, n, constant = Moments(2), 0.06, 50, 0.8
    program = PROGRAMS["stable_balancing"](alpha=alpha, balance=balance, constant=constant, ridge=ridge)
    g = np.column_stack([np.full(n, constant), balance(records.covariates)])
    w, goal = cp.Variable(n, nonneg=True), g.sum(axis=0) / 2
    arm = [g * (records.a == a)[:, None] for a in (0, 1)]
    missed = [cp.sum_squares(rows.T @ w - goal) for rows in arm]
    between = cp.sum_squares(arm[0].T @ w - arm[1].T @ w)
    objective = alpha * (missed[0] + missed[1]) + (1 - alpha) * between + n * ridge * cp.sum_squares(w)
    expected = _cvxpy(objective, [cp.sum(w) == n], w)
    np.testing.assert_allclose(solve(program.instance(records)).value, expected, atol=1e-6)


@pytest.mark.parametrize("tolerance", [0.2, 0.03, 0.001])
@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
def test_hard_stable_balancing_is_the_quadratic_program_it_states(balance, tolerance):
    records = make_records(80, 3)
    g, w, n = balance(records.covariates), cp.Variable(80, nonneg=True), 80
    constraints = []
    for arm in (0, 1):
        inside = np.where(records.a == arm, 1.0, 0.0)
        # weighted means of the arm, whose weights sum to n/2
        mean = cp.multiply(inside[:, None], g).T @ w / (n / 2)
        constraints += [inside @ w == n / 2, cp.abs(mean - g.mean(axis=0)) <= tolerance]
    expected = _cvxpy(cp.sum_squares(w), constraints, w)
    program = PROGRAMS["stable_balancing_hard"](balance=balance, tolerance=tolerance)
    solution = solve(program.instance(records))
    np.testing.assert_allclose(solution.value, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["itr_huber", "itr_logistic"])
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

    loss = huber if name == "itr_huber" else logistic
    settings = {"threshold": k} if name == "itr_huber" else {}

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


def test_the_huber_rule_at_unit_weights_is_scipys_robust_regression():
    records = make_records(200, 4)
    response = 2 * (2 * records.a - 1) * records.y
    found = least_squares(
        lambda theta: response - records.X @ theta,
        np.zeros(5),
        loss="huber",
        f_scale=0.7,
        xtol=1e-15,
        ftol=1e-15,
        gtol=1e-15,
    )
    rule = PROGRAMS["itr_huber"](threshold=0.7, theta_set=WholeSpace())
    theta = solve(rule.instance(records, np.ones(200), gamma=1e-9)).value
    np.testing.assert_allclose(theta, found.x, atol=1e-6)


def test_the_logistic_rule_is_a_weighted_logistic_regression():
    records = make_records(200, 4)
    weights, gamma = make_weights(records), 0.03
    best = np.where(records.y < 0, 1 - records.a, records.a)  # the treatment that the outcome speaks for
    fit = LogisticRegression(
        C=1 / (200 * gamma), fit_intercept=False, tol=1e-12, max_iter=1000, solver="newton-cg"
    )
    fit.fit(records.X, best, sample_weight=weights * np.abs(records.y))
    rule = PROGRAMS["itr_logistic"](theta_set=WholeSpace())
    theta = solve(rule.instance(records, weights, gamma=gamma)).value
    np.testing.assert_allclose(theta, fit.coef_[0], atol=1e-7)


def test_regression_is_weighted_least_squares():
    records = make_records(200, 4)
    weights = make_weights(records)
    fit = LinearRegression(fit_intercept=False).fit(records.X, records.y, sample_weight=weights)
    program = PROGRAMS["regression"](theta_set=WholeSpace())
    theta = solve(program.instance(records, weights, gamma=1e-10)).value
    np.testing.assert_allclose(theta, fit.coef_, atol=1e-8)
