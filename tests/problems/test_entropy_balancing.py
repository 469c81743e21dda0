"""Entropy balancing as a problem in the weights has the weights of its dual, and a smaller bound.

The dual, and the problem with caps, are written out here with arrays as data: nothing of the library's
reading or solving is used for them.
"""

import math
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.domain import Array, Domain, Records, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.program import BalanceFunctions, Moments, scheme, setting
from dp2erm_cvx.public import public_size
from dp2erm_cvx.solve import solve


@scheme(
    balance=Moments(),
    constant=setting("G_x", public_size),
    ridge=setting("constant**2 + G_x**2", public_size),
    radius=setting(math.inf, public_size, infinite=True),
    cap=setting(3.0, above=0, infinite=True),
    treated=setting(0.5, above=0, below=1),
    kinks=False,
)
def entropy_in_weights(
    w: cp.Variable,
    records: Any,
    balance: Moments | BalanceFunctions,
    constant: float,
    ridge: float,
    radius: float,
    cap: float,
    treated: float,
) -> cp.Problem:
    """Entropy balancing, relaxed by a ridge (Hainmueller 2012).

    No weight is above ``cap`` times the mean weight of its arm, if both arms weigh half and a public share of
    the records is ``treated``.
    """
    n = records.n
    half = cp.sum(records.features(balance), axis=0) / 2
    mass = constant * (records.arms.T @ w - n / 2)
    of_controls = records.features(balance, "controls").T @ w - half
    of_treated = records.features(balance, "treated").T @ w - half
    imbalance = cp.hstack([mass, of_controls, of_treated]) / n
    squares = cp.sum_squares(imbalance)
    if math.isfinite(radius):
        squares = cp.huber(cp.norm(imbalance), ridge * radius)
    constraints = [cp.sum(w) == n, w >= 0]
    if math.isfinite(cap):
        caps = cap / 2 * np.array([1 / (1 - treated), 1 / treated])
        constraints.append(w <= records.arms @ caps)
    return cp.Problem(cp.Minimize(n / (2 * ridge) * squares - cp.sum(cp.entr(w))), constraints)


#: Number of records, and of covariates.
N, P = 80, 3
DOMAIN = Domain(1.0, 1.0, arm_floor=5)
#: Balance functions by default.
MEANS = Moments()
#: Settings of the program without a cap: functions, constant, ridge and radius.
UNCAPPED: dict[str, dict[str, Any]] = {
    "default": {},
    "small ridge": {"ridge": 0.02},
    "squares": {"ridge": 0.1, "balance": Moments(2), "constant": 0.5},
    "ball that binds": {"ridge": 0.05, "radius": 0.1},
    "ball that does not": {"ridge": 0.2, "radius": 5.0},
}
CAPPED: dict[str, dict[str, Any]] = {
    "cap that binds": {"ridge": 0.01, "cap": 1.5},
    "few treated": {"ridge": 0.01, "cap": 2.2, "treated": 0.2},
}


def records_of(seed: int, n: int = N) -> Records:
    """Confounded records in the unit ball."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    a[:2] = 0, 1
    return DOMAIN.records(X, a, np.zeros(n))


def rows_of(records: Records, balance: Moments = MEANS, constant: float = 1.0) -> tuple[Array, Array]:
    """Rows ``e_a (x) (constant, g(x))`` (n, 2k), and their target, half of the mean of both arms."""
    X = records.covariates
    powers = [X**degree for degree in range(1, balance.degree + 1)]
    g = np.hstack([np.full((len(X), 1), constant), *powers])
    inside = records.a[:, None]
    half = g.mean(axis=0) / 2
    return np.hstack([(1 - inside) * g, inside * g]), np.concatenate([half, half])


def clarabel(problem: cp.Problem) -> None:
    """Solve at tolerances that are hardly reached."""
    tight = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-14, "tol_feas": 1e-14, "tol_ktratio": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)


def dual_weights(records: Records, ridge: float = 2.0, radius: float = math.inf, **functions: Any) -> Array:
    """Weights of the regularized dual, which are proportional to ``exp(<b_i, lam>)``.

    A solver of cones finds the coefficient to half of its digits; projected gradient steps find the others.
    """
    B, target = rows_of(records, **functions)
    lam = cp.Variable(B.shape[1])
    log_mean = cp.log_sum_exp(B @ lam) - math.log(len(B))
    ball = [cp.norm(lam) <= radius] if math.isfinite(radius) else []
    clarabel(cp.Problem(cp.Minimize(log_mean - target @ lam + ridge / 2 * cp.sum_squares(lam)), ball))
    point = np.asarray(lam.value)
    for _ in range(4000):
        weights = law(B, point)
        slope = B.T @ weights - target + ridge * point
        point = point - slope / (ridge + np.linalg.norm(B, axis=1).max() ** 2)
        point = point * min(1.0, radius / float(np.linalg.norm(point)))
    return len(B) * law(B, point)


def law(B: Array, point: Array) -> Array:
    """The law proportional to ``exp(<b_i, lam>)``."""
    scores = B @ point
    odds = np.exp(scores - scores.max())
    return np.asarray(odds / odds.sum())


def primal_weights(records: Records, ridge: float, cap: float, treated: float = 0.5) -> Array:
    """Weights of the problem in the weights, with caps by arm."""
    B, target = rows_of(records)
    w = cp.Variable(N)
    missed = B.T @ w / N - target
    caps = np.where(records.a == 1, cap / (2 * treated), cap / (2 * (1 - treated)))
    price = cp.sum_squares(missed) / (2 * ridge)
    clarabel(cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w)) / N), [cp.sum(w) == N, w <= caps]))
    return np.asarray(w.value)


@pytest.mark.parametrize("name", UNCAPPED)
@pytest.mark.parametrize("seed", range(2))
def test_weights_without_a_cap_are_those_of_the_dual(name: str, seed: int) -> None:
    records = records_of(seed)
    settings = {"constant": 1.0, **UNCAPPED[name]}
    weights = solve(entropy_in_weights(cap=math.inf, **settings).instance(records)).value
    by_class = solve(EntropyBalancing(**settings).instance(records)).value
    assert np.sum(np.abs(weights - by_class)) <= 1e-9 * N
    assert np.sum(np.abs(weights - dual_weights(records, **settings))) <= 1e-9 * N


@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.parametrize("seed", range(2))
def test_capped_weights_are_those_of_the_problem(name: str, seed: int) -> None:
    records = records_of(seed)
    weights = solve(entropy_in_weights(**CAPPED[name]).instance(records)).value
    # a solver of cones leaves half of the digits of an entropy
    assert np.sum(np.abs(weights - primal_weights(records, **CAPPED[name]))) <= 1e-5 * N
    treated = CAPPED[name].get("treated", 0.5)
    caps = CAPPED[name]["cap"] / 2 / np.array([1 - treated, treated])
    assert np.all(weights <= caps[records.a])
    # the cap binds: without one the weights are other ones
    free = solve(entropy_in_weights(ridge=0.01, cap=math.inf).instance(records)).value
    assert np.max(np.abs(free - weights)) > 1e-3


@pytest.mark.parametrize("settings", [{}, {"ridge": 0.3}, {"ridge": 0.05, "radius": 0.1}], ids=str)
@pytest.mark.parametrize("n", [50, 400, 4000])
def test_the_bound_is_below_that_of_theorem_4(settings: dict[str, float], n: int) -> None:
    universe = Universe(DOMAIN, n, P)
    before = EntropyBalancing(**settings).stability(universe).V
    assert entropy_in_weights(**settings).stability(universe).V < before


def test_a_cap_holds_the_bound_where_the_ridge_is_small() -> None:
    """V is free of n with a cap, and grows with n without one."""
    capped = []
    free = []
    for n in (400, 4000):
        universe = Universe(DOMAIN, n, P)
        capped.append(entropy_in_weights(ridge=0.01).stability(universe).V)
        free.append(entropy_in_weights(ridge=0.01, cap=math.inf).stability(universe).V)
    assert capped[1] == pytest.approx(capped[0], rel=0.01)
    assert capped[1] < 40
    assert free == [800.0, 8000.0]


def test_the_share_of_the_treated_decides_the_caps_alone() -> None:
    """Where no cap binds the declared share changes no weight."""
    records = records_of(0)
    weights = [solve(entropy_in_weights(treated=share).instance(records)).value for share in (0.2, 0.5)]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-11)


def test_caps_that_cannot_hold_the_sum_are_refused() -> None:
    """Controls of at most 0.94 cannot have the mean 1 where almost all records are controls."""
    with pytest.raises(DeclarationError, match="cap"):
        entropy_in_weights(cap=1.5, treated=0.2).stability(Universe(DOMAIN, N, P))
