"""Balance of controls to the treated: its problem in arrays, exact weights, and neighbors against
V.
"""

import math
import warnings

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.problems.att_balancing import att_balancing
from dp2erm_cvx.program import Moments
from dp2erm_cvx.solve import solve
from tests import exact

#: Number of records, of covariates, and of records of the pairs with the floor of their arms.
N, P, MANY, FLOOR = 60, 3, 48, 16
DOMAIN = Domain(1.0, 1.0, arm_floor=12)
SMALL = Domain(1.0, 1.0, arm_floor=FLOOR)


def drawn(seed, n=N):
    """Confounded records in the unit ball, at least 12 of each arm."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    a[:24] = np.arange(24) % 2
    return X, a, np.clip(X[:, 0] + 0.5 * a, -1.0, 1.0)


def minimized(g, a, ridge, cap):
    """Weights of sum n by Clarabel, from arrays and the controls alone."""
    n, treated = len(a), int(np.sum(a))
    w = cp.Variable(n - treated)
    missed = np.sum(g[a == 1], axis=0) - g[a == 0].T @ w
    price = cp.sum_squares(missed) / (2.0 * n * ridge)
    box = [w >= 0] if math.isinf(cap) else [w >= 0, w <= cap]
    objective = cp.Minimize((price - cp.sum(cp.entr(w))) / n)
    problem = cp.Problem(objective, [cp.sum(w) == treated, *box])
    tight = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-14, "tol_feas": 1e-14, "tol_ktratio": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", **tight)
    weights = np.ones(n)
    weights[a == 0] = w.value
    return weights * n / (2.0 * treated)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "settings", [{}, {"ridge": 0.01}, {"ridge": 0.003, "cap": 1.5}, {"cap": math.inf}]
)
def test_weights_are_those_of_the_problem_in_arrays(settings, seed):
    X, a, y = drawn(seed)
    whole = {"ridge": 1.0, "cap": 10.0} | settings
    found = solve(att_balancing(**settings).instance(DOMAIN.records(X, a, y))).value
    np.testing.assert_allclose(found, minimized(X, a, **whole), atol=2e-6)


def test_balance_functions_are_those_of_the_problem():
    X, a, y = drawn(2)
    program = att_balancing(balance=Moments(2), ridge=0.02, cap=2.0)
    g = np.hstack([X, X**2])
    found = solve(program.instance(DOMAIN.records(X, a, y))).value
    np.testing.assert_allclose(found, minimized(g, a, 0.02, 2.0), atol=2e-6)


def test_each_arm_weighs_half_and_a_cap_counts_treated_records():
    X, a, y = drawn(3)
    free = solve(att_balancing(ridge=1e-3).instance(DOMAIN.records(X, a, y))).value
    capped = solve(att_balancing(ridge=1e-3, cap=1.5).instance(DOMAIN.records(X, a, y))).value
    of_treated = N / (2.0 * np.sum(a))
    for weights in (free, capped):
        np.testing.assert_allclose(weights[a == 1], of_treated, rtol=1e-12)
        assert np.sum(weights[a == 0]) == pytest.approx(N / 2.0, rel=1e-12)
    assert np.max(free[a == 0]) > 1.6 * of_treated
    assert np.max(capped[a == 0]) == pytest.approx(1.5 * of_treated, rel=1e-9)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("ridge", "is_public"), [(1e-4, False), (1e-2, True), (1.0, True)])
def test_certified_radii_cover_the_distance_to_exact_weights(ridge, is_public):
    """Without a cap controls are tilted: their weights to 50 digits, from the dual."""
    for seed in range(2):
        X, a, y = drawn(seed)
        records = DOMAIN.records(X, a, y)
        rows = exact.to_mp(records.covariates[a == 0])
        treated = int(np.sum(a))
        columns = zip(*exact.to_mp(records.covariates[a == 1]), strict=True)
        target = [mp.fsum(column) / treated for column in columns]
        of_mean = mp.mpf(ridge) * N / treated
        program = att_balancing(ridge=ridge, cap=math.inf).resolve(DOMAIN.space)
        instance = program.instance(records)
        solution = solve(instance)
        near = exact.to_mp(solution.value[a == 0])
        total = mp.fsum(near)
        start = []
        for column, mean in zip(zip(*rows, strict=True), target, strict=True):
            reached = mp.fsum(w * x for w, x in zip(near, column, strict=True)) / total
            start.append((mean - reached) / of_mean)
        _, tilted = exact.entropy_dual(rows, target, of_mean, math.inf, start)
        share = mp.mpf(N) / 2 / len(rows)
        controls = iter(tilted)
        weights = [mp.mpf(N) / (2 * treated) if arm else share * next(controls) for arm in a]
        error = exact.distance(weights, solution.value, 1)
        assert solution.certified
        assert error <= solution.certificate.output_radius
        reach = program.certified_error(universe(N))
        assert (reach is not None) == is_public
        assert reach is None or solution.certificate.relative_radius <= reach


def universe(n, domain=DOMAIN):
    return Universe(domain, n, P)


def moved_weights(program, records, neighbor):
    """V of a pair that differs in its first record, and the largest weight of either."""
    before = solve(program.instance(records)).value
    after = solve(program.instance(neighbor)).value
    moved = float(np.sum(np.abs(after - before)[1:]) + before[0] + after[0])
    return moved, max(np.max(before), np.max(after))


def neighboring_tables(rng, kind):
    """Two tables of 48 records: controls in few places, and a first record that is turned over.

    Parameters
    ----------
    rng
        Draws the places, and how many controls have which of them.
    kind
        What the first record is: a control, a treated record, or one that changes its arm.

    Returns
    -------
    list
        Records before and after.
    """
    treated = int(rng.choice([FLOOR + 1, (MANY - 2) // 2]))
    controls = MANY - 1 - treated
    first = rng.uniform(0.2, 1.0)
    second = rng.uniform(0.0, math.sqrt(1.0 - first**2))
    X = np.zeros((MANY, P))
    X[0, 0] = 1.0
    X[1 : 1 + treated, 0] = first * rng.uniform(-1.0, 1.0)
    share = rng.choice([1.0, rng.uniform()])
    X[1 + treated :, 0] = first * np.where(np.arange(controls) < controls * share, 1.0, -1.0)
    X[1 + treated :, 1] = second * (-1.0) ** np.arange(controls)
    a = (np.arange(MANY) <= treated).astype(np.int64)
    a[0] = kind == "treated"
    turned = X.copy()
    turned[0] = -X[0]
    changed = a.copy()
    if kind == "changes":
        changed[0] = 1
    return [SMALL.records(*table, np.zeros(MANY)) for table in ((X, a), (turned, changed))]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("settings", [{"cap": 2.0}, {"ridge": 0.1, "cap": 2.0}])
@pytest.mark.parametrize(
    ("kind", "least"), [("control", 0.25), ("treated", 0.2), ("changes", 0.35)]
)
def test_no_pair_of_neighbors_moves_beyond_the_bound(kind, least, settings):
    program = att_balancing(**settings).at(universe(MANY, SMALL))
    stability = program.stability(universe(MANY, SMALL))
    assert stability.V < 0.2 * 2 * MANY
    rng = np.random.default_rng(5)
    largest = 0.0
    for _ in range(20):
        moved, heaviest = moved_weights(program, *neighboring_tables(rng, kind))
        assert moved <= stability.V
        assert heaviest <= stability.w_max * (1.0 + 1e-9)
        largest = max(largest, moved / stability.V)
    assert largest > least


def test_the_arm_floor_has_to_let_controls_weigh_as_much_as_the_treated():
    program = att_balancing(cap=4.0)
    assert program.stability(universe(N)).V < N
    with pytest.raises(CalibrationError, match="arm_floor is not declared"):
        program.stability(universe(N, Domain(1.0, 1.0)))
    with pytest.raises(CalibrationError, match="declare a larger arm_floor, or a larger cap"):
        program.stability(universe(N, Domain(1.0, 1.0, arm_floor=11)))


def test_v_falls_with_the_cap_and_with_the_floor_of_the_treated():
    wide, narrow = (
        att_balancing(ridge=0.1, cap=cap).stability(universe(N)).V for cap in (10.0, 4.0)
    )
    higher = (
        att_balancing(ridge=0.1, cap=4.0).stability(universe(N, Domain(1.0, 1.0, arm_floor=20))).V
    )
    assert higher < narrow < wide


def test_a_release_stands_private_on_it():
    model = PrivateTwoStageERM(DOMAIN, Budget(4.0), att_balancing(cap=4.0), "arm_means").fit(
        *drawn(3)
    )
    assert model.release_.private
