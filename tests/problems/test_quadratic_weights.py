"""Weights of quadratic programs against the same problems written down again for CVXPY and SciPy."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize

from dp2erm_cvx.program import Gaussian, Moments
from dp2erm_cvx.program.kernel_model import PublicSample
from dp2erm_cvx.program.kernels import Linear
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.helpers import make_records

PROGRAMS: dict[str, Any] = dict(programs())


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
