"""Entropy balancing as a problem in the weights has the weights of its dual, and a smaller bound.

The dual, and the problem with caps, are written out here with arrays as data: nothing of the
library's reading or solving is used for them.
"""

import math
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.program import Moments, scheme
from dp2erm_cvx.solve import solve

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


def rows_of(
    records: Records, balance: Moments = MEANS, constant: float = 1.0
) -> tuple[Array, Array]:
    """Rows ``e_a (x) (constant, g(x))`` (n, 2k), and their target, half of the mean of both
    arms.
    """
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


def dual_weights(
    records: Records,
    ridge: float = 2.0,
    radius: float = math.inf,
    order: float = 2,
    **functions: Any,
) -> Array:
    """Weights of the regularized dual, which are proportional to ``exp(<b_i, lam>)``.

    A solver of cones finds the coefficient to half of its digits; projected gradient steps find the
    others. The ball is that of the norm of this order, 2 or infinity.
    """
    B, target = rows_of(records, **functions)
    lam = cp.Variable(B.shape[1])
    log_mean = cp.log_sum_exp(B @ lam) - math.log(len(B))
    ball = [cp.norm(lam, order) <= radius] if math.isfinite(radius) else []
    clarabel(
        cp.Problem(cp.Minimize(log_mean - target @ lam + ridge / 2 * cp.sum_squares(lam)), ball)
    )
    point = np.asarray(lam.value)
    for _ in range(4000):
        weights = law(B, point)
        slope = B.T @ weights - target + ridge * point
        point = point - slope / (ridge + np.linalg.norm(B, axis=1).max() ** 2)
        if order == 2:
            point = point * min(1.0, radius / float(np.linalg.norm(point)))
        else:
            point = np.clip(point, -radius, radius)
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


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", UNCAPPED)
@pytest.mark.parametrize("seed", range(2))
def test_weights_without_a_cap_are_those_of_the_dual(name: str, seed: int) -> None:
    records = records_of(seed)
    settings = {"constant": 1.0, **UNCAPPED[name]}
    weights = solve(entropy_balancing(cap=math.inf, **settings).instance(records)).value
    assert np.sum(np.abs(weights - dual_weights(records, **settings))) <= 1e-9 * N


@scheme(ridge=0.1, radius=0.1)
def within_a_cube(w: cp.Variable, records: Any, ridge: float, radius: float) -> cp.Problem:
    """Entropy balancing whose dual lies within a ball of the sup norm, as the paper displays it."""
    n = records.n
    half = cp.sum(records.features(MEANS), axis=0) / 2
    mass = records.arms.T @ w - n / 2
    of_controls = records.features(MEANS, "controls").T @ w - half
    of_treated = records.features(MEANS, "treated").T @ w - half
    imbalance = cp.hstack([mass, of_controls, of_treated]) / n
    price = cp.sum(cp.huber(imbalance, ridge * radius))
    return cp.Problem(cp.Minimize(n / (2 * ridge) * price - cp.sum(cp.entr(w))), [cp.sum(w) == n])


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.05, 0.3])
def test_a_ball_of_the_sup_norm_is_a_huber_price_of_every_entry(radius: float) -> None:
    records = records_of(1)
    weights = solve(within_a_cube(radius=radius).instance(records)).value
    dual = dual_weights(records, 0.1, radius, order=math.inf)
    assert np.sum(np.abs(weights - dual)) <= 1e-9 * N
    # the ball binds, and it is another one than that of the 2-norm
    round_ball = dual_weights(records, 0.1, radius)
    assert np.sum(np.abs(weights - round_ball)) > 1e-3
    assert within_a_cube(radius=radius).stability(Universe(DOMAIN, N, P)).V < 2 * N


def test_a_radius_alone_is_refused_and_said_how_to_write() -> None:
    with pytest.raises(
        DeclarationError, match=r"ridge = 0: .* n \* radius \* cp.norm\(imbalance\)"
    ):
        entropy_balancing(ridge=0.0, radius=1.0)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", CAPPED)
@pytest.mark.parametrize("seed", range(2))
def test_capped_weights_are_those_of_the_problem(name: str, seed: int) -> None:
    records = records_of(seed)
    weights = solve(entropy_balancing(**CAPPED[name]).instance(records)).value
    # a solver of cones leaves half of the digits of an entropy
    assert np.sum(np.abs(weights - primal_weights(records, **CAPPED[name]))) <= 1e-5 * N
    treated = CAPPED[name].get("treated", 0.5)
    caps = CAPPED[name]["cap"] / 2 / np.array([1 - treated, treated])
    assert np.all(weights <= caps[records.a])
    # the cap binds: without one the weights are other ones
    free = solve(entropy_balancing(ridge=0.01, cap=math.inf).instance(records)).value
    assert np.max(np.abs(free - weights)) > 1e-3


def test_a_cap_holds_the_bound_where_the_ridge_is_small() -> None:
    """V is free of n with a cap, and grows with n without one."""
    capped = []
    free = []
    for n in (400, 4000):
        universe = Universe(DOMAIN, n, P)
        capped.append(entropy_balancing(ridge=0.01).stability(universe).V)
        free.append(entropy_balancing(ridge=0.01, cap=math.inf).stability(universe).V)
    assert capped[1] == pytest.approx(capped[0], rel=0.01)
    assert capped[1] < 40
    assert free == [800.0, 8000.0]


def test_the_share_of_the_treated_decides_the_caps_alone() -> None:
    """Where no cap binds the declared share changes no weight."""
    records = records_of(0)
    weights = [
        solve(entropy_balancing(treated=share).instance(records)).value for share in (0.2, 0.5)
    ]
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-11)


@pytest.mark.parametrize(("share", "cap"), [(0.2, 1.5), (0.35, 1.2), (0.8, math.inf)])
def test_bases_by_arm_are_the_mean_weights_of_arms_that_weigh_half(
    share: float, cap: float
) -> None:
    records = records_of(2)
    program = entropy_balancing(ridge=0.05, treated=share, cap=cap, bases="by_arm")
    weights = solve(program.instance(records)).value
    B, target = rows_of(records)
    w = cp.Variable(N)
    base = np.where(records.a == 1, 1 / (2 * share), 1 / (2 * (1 - share)))
    caps = np.maximum(min(cap, 1e3) * base, 1.0)
    price = cp.sum_squares(B.T @ w / N - target) / (2 * 0.05)
    clarabel(
        cp.Problem(cp.Minimize(price + cp.sum(cp.kl_div(w, base)) / N), [cp.sum(w) == N, w <= caps])
    )
    assert np.sum(np.abs(weights - w.value)) <= 1e-5 * N
    universe = Universe(DOMAIN, N, P)
    assert program.at(universe).own_data() == ()


def test_bases_by_arm_have_a_public_radius_at_every_share() -> None:
    universe = Universe(DOMAIN, 4000, P)
    for share in (0.02, 0.98):
        program = entropy_balancing(ridge=0.05, treated=share, cap=1.5, bases="by_arm").at(universe)
        radius = program.certified_error(universe)
        assert radius is not None
        assert radius < 1e-8
    even = entropy_balancing(ridge=0.05, cap=1.5).stability(universe).V
    assert entropy_balancing(ridge=0.05, cap=1.5, bases="by_arm").stability(
        universe
    ).V == pytest.approx(even)


def test_bases_of_another_name_are_refused() -> None:
    with pytest.raises(DeclarationError, match="bases"):
        entropy_balancing(bases="by_group")


def test_caps_that_cannot_hold_the_sum_are_refused() -> None:
    """Controls of at most 0.94 cannot have the mean 1 where almost all records are controls."""
    with pytest.raises(DeclarationError, match="cap"):
        entropy_balancing(cap=1.5, treated=0.2).stability(Universe(DOMAIN, N, P))


@pytest.mark.slow
def test_a_million_records_are_read() -> None:
    """Coefficients of one weight keep their digits beside a sum that is as large as n."""
    few, many = (entropy_balancing().stability(Universe(DOMAIN, n, 1)).V for n in (10**4, 10**6))
    assert many == pytest.approx(few, rel=0.01)
