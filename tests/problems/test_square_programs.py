"""Programs of squared imbalances have the weights of their CVXPY problems, which are written out
here.

Data are arrays here, and features of a kernel are a factor of its matrix: nothing of the library's
reading or solving is used.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import spatial

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.program import Gaussian, Moments
from dp2erm_cvx.program.kernels import Laplace, Linear, PublicSample
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import solve

#: Number of records, and of covariates.
N, P = 80, 3
#: Weights agree to this many units of n.
AGREE = 1e-9
#: A public population that weights are matched to.
TARGET = PublicSample(np.array([[0.3, -0.2, 0.1], [0.1, 0.4, 0.0]]))


def records_of(seed: int) -> Records:
    """Confounded records in the unit ball."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N, P)) / math.sqrt(P)
    a = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    a[:2] = 0, 1
    return Domain(1.0, 1.0, arm_floor=5).records(X, a, np.zeros(N))


def factor_of(K: Array) -> Array:
    """Rows whose inner products are a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(K)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def gaussian(X: Array, Y: Array, bandwidth: float = 1.0) -> Array:
    return np.asarray(np.exp(-(spatial.distance.cdist(X, Y) ** 2) / (2.0 * bandwidth**2)))


def laplace(X: Array, Y: Array) -> Array:
    return np.asarray(np.exp(-spatial.distance.cdist(X, Y) / 0.5))


def linear(X: Array, Y: Array) -> Array:
    return np.asarray(1.0 + X @ Y.T)


def energy(X: Array, Y: Array) -> Array:
    norms = np.linalg.norm(X, axis=1)[:, None] + np.linalg.norm(Y, axis=1)[None, :]
    return np.asarray(norms - spatial.distance.cdist(X, Y))


def minimized(w: cp.Variable, objective: Any, constraints: list[Any]) -> Array:
    """Weights by Clarabel at tolerances that it hardly reaches, in units of the objective near
    1.
    """
    problem = cp.Problem(cp.Minimize(objective / N), [*constraints, w >= 0])
    tight = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-14, "tol_feas": 1e-14, "tol_ktratio": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)
    return np.asarray(w.value)


def three_ways(
    F: Array, a: Array, ridge: float, alpha: float, *, pooled: bool, cap: float = math.inf
) -> Array:
    """Both arms are balanced to all records and to each other."""
    w = cp.Variable(N)
    half = F.sum(axis=0) / 2.0
    controls = (F * (1.0 - a)[:, None]).T @ w
    treated = (F * a[:, None]).T @ w
    to_sample = cp.sum_squares(controls - half) + cp.sum_squares(treated - half)
    price = alpha * to_sample + (1.0 - alpha) * cp.sum_squares(controls - treated)
    sums = [cp.sum(w) == N] if pooled else [(1.0 - a) @ w == N / 2, a @ w == N / 2]
    if math.isfinite(cap):
        sums.append(w <= cap)
    return minimized(w, price + N * ridge * cp.sum_squares(w), sums)


def stable(records: Records, ridge: float, alpha: float, constant: float, degree: int) -> Array:
    """Means of the constant and of powers of the covariates are balanced."""
    X = records.covariates
    powers = [X**k for k in range(1, degree + 1)]
    F = np.column_stack([np.full(N, constant), *powers])
    return three_ways(F, records.a, ridge, alpha, pooled=True)


def of_kernel(K: Callable[[Array, Array], Array], ridge: float, alpha: float, **sums: Any) -> Any:
    """A statement of kernel balance."""
    return lambda records: three_ways(
        factor_of(K(records.covariates, records.covariates)), records.a, ridge, alpha, **sums
    )


def matched(
    records: Records, K: Callable[[Array, Array], Array], ridge: float, public: bool
) -> Array:
    """Records, or the controls alone, are made like a public sample, or like the treated."""
    X = records.covariates
    source = np.arange(N) if public else np.flatnonzero(records.a == 0)
    target = TARGET.X if public else X[records.a == 1]
    F = factor_of(K(X[source], X[source]))
    w = cp.Variable(len(source))
    linear_term = N * K(X[source], target).mean(axis=1)
    objective = cp.sum_squares(F.T @ w) - 2.0 * linear_term @ w + N * ridge * cp.sum_squares(w)
    weights = np.zeros(N)
    weights[source] = minimized(w, objective, [cp.sum(w) == N])
    return weights


#: Program, its settings, and its statement.
CASES: dict[str, tuple[str, dict[str, Any], Callable[[Records], Array]]] = {
    "stable": ("stable_balancing", {}, lambda r: stable(r, 2.0, 1.0, 1.0, 1)),
    "stable, small ridge": (
        "stable_balancing",
        {"ridge": 0.02},
        lambda r: stable(r, 0.02, 1.0, 1.0, 1),
    ),
    "stable, squares": (
        "stable_balancing",
        {"ridge": 0.5, "alpha": 0.3, "balance": Moments(2), "constant": 0.3},
        lambda r: stable(r, 0.5, 0.3, 0.3, 2),
    ),
    "pooled": ("mmd_pooled", {}, of_kernel(gaussian, 1.0, 0.5, pooled=True)),
    "pooled, linear": (
        "mmd_pooled",
        {"ridge": 0.05, "kernel": Linear(1.0), "alpha": 1.0},
        of_kernel(linear, 0.05, 1.0, pooled=True),
    ),
    "by arm": ("mmd", {}, of_kernel(gaussian, 1.0, 0.5, pooled=False)),
    "by arm, wide": (
        "mmd",
        {"ridge": 2.0, "kernel": Gaussian(2.0)},
        of_kernel(lambda X, Y: gaussian(X, Y, 2.0), 2.0, 0.5, pooled=False),
    ),
    "by arm, laplace, to the other arm": (
        "mmd",
        {"ridge": 0.05, "kernel": Laplace(0.5), "alpha": 0.0},
        of_kernel(laplace, 0.05, 0.0, pooled=False),
    ),
    "by arm, cap": (
        "mmd",
        {"ridge": 0.01, "alpha": 1.0, "cap": 2.5},
        of_kernel(gaussian, 0.01, 1.0, pooled=False, cap=2.5),
    ),
    "energy": ("energy_balancing", {}, of_kernel(energy, 2.0, 0.5, pooled=False)),
    "energy, small ridge": (
        "energy_balancing",
        {"ridge": 0.02},
        of_kernel(energy, 0.02, 0.5, pooled=False),
    ),
    "matched to the treated": (
        "kernel_mean_matching",
        {"ridge": 0.3},
        lambda r: matched(r, gaussian, 0.3, public=False),
    ),
    "matched to a public sample": (
        "kernel_mean_matching",
        {"ridge": 0.05, "target": TARGET},
        lambda r: matched(r, gaussian, 0.05, public=True),
    ),
}


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_weights_are_those_of_the_statement(name: str, seed: int) -> None:
    program, settings, statement = CASES[name]
    records = records_of(seed)
    weights = solve(programs()[program](**settings).instance(records)).value
    assert np.sum(np.abs(weights - statement(records))) <= AGREE * N


def test_data_that_are_too_large_for_parameters_are_given_to_solvers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = programs()["stable_balancing"]().instance(records_of(0))
    exact = solve(instance).value
    monkeypatch.setattr("dp2erm_cvx.solve.solvers.PARAMETER_LIMIT", 0.0)
    own = solve(instance, solver="clarabel", polish=False, tolerance=1e-6)
    np.testing.assert_allclose(own.value, exact, atol=1e-6)
