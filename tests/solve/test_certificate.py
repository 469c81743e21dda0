"""Certificates by a duality gap are never below the true error."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.program import Box, L1Ball, WholeSpace, scheme
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import certify, solve, solvers
from tests.helpers import make_records, make_weights, output_distance

N, P = 30, 3
GAMMA = 0.03
RECORDS: Records = make_records(N, P, seed=11)
NOISE: Array = 0.7 * np.random.default_rng(12).normal(size=P + 1)


@pytest.mark.parametrize("theta_set", [None, L1Ball(0.5), L2Ball(0.4), Box(0.2), WholeSpace()], ids=str)
@pytest.mark.parametrize(("l1", "l2"), [pytest.param(0.2, 0.0, marks=pytest.mark.slow), (0.1, 0.3)])
def test_gap_certificate_of_a_user_regularizer_covers_the_distance(theta_set, l1, l2):
    """The same regularizer, once as an expression that only a gap can judge and once in its prox form."""
    itr: Any = programs()["itr"]
    user = UserRegularizer(
        lambda theta: l1 * cp.norm(theta, 1) + l2 / 2 * cp.sum_squares(theta), "elastic net"
    )
    weights = make_weights(RECORDS)
    known = itr(theta_set=theta_set, regularizer=ElasticNet(l1, l2))
    truth = solve(known.instance(RECORDS, weights, gamma=GAMMA, noise=NOISE))
    instance = itr(theta_set=theta_set, regularizer=user).instance(RECORDS, weights, gamma=GAMMA, noise=NOISE)
    assert instance.model is None
    rng = np.random.default_rng(14)
    for solver in ("clarabel", "scs"):
        solution = solve(instance, solver=solver)
        assert solution.certificate.basis == "duality gap"
        for exponent in (-np.inf, -8, -6, -4, -2, -1):
            point = solution.point + 10.0**exponent * rng.normal(size=P + 1)
            certificate = certify(instance, point)
            distance = output_distance(itr(), point, truth.value)
            assert certificate.radius >= distance - truth.certificate.radius
            # a gap grows linearly in the distance along an active bound, so half of the digits are lost
            assert certificate.radius <= 50 * np.sqrt(max(distance, 1e-10))


def test_no_dual_point_proves_more_than_the_optimum():
    """What a dual point leaves of stationarity is charged: not even a random one is a bound above it."""
    itr = programs()["itr"](L2Ball(0.4), UserRegularizer(lambda theta: cp.norm(theta, 1)))
    instance = itr.instance(RECORDS, make_weights(RECORDS), gamma=GAMMA, noise=NOISE)
    problem, rng = solvers.compiled_for(instance, "clarabel").problem, np.random.default_rng(15)
    data, chain, _ = problem.get_problem_data("CLARABEL")
    raw, optimum = chain.solve_via_data(problem, data), problem.solve(solver="CLARABEL")
    x, z = np.asarray(raw.x), np.asarray(raw.z)
    assert optimum - solvers._lower_bound(x, z, data) <= 1e-5 * abs(optimum)
    for size in np.geomspace(1e-3, 10, 40):
        assert solvers._lower_bound(x, z + size * rng.normal(size=len(z)), data) <= optimum


@scheme(size=0.5)
def near_one(w, records, size):
    """Weights in a small ball around 1 under the norm of the imbalance."""
    imbalance = cp.norm(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + 5 * imbalance), [cp.norm(w - 1) <= size])


def test_a_point_beyond_a_constraint_pays_its_price():
    """The objective lies below the optimum there: a gap alone would call the point exact."""
    bound, (tight, free) = near_one(), (solve(near_one(size=s).instance(RECORDS)) for s in (0.5, 50.0))
    apart = float(np.linalg.norm(tight.point - free.point))
    assert apart > 0.2
    assert certify(bound.instance(RECORDS), free.point).radius >= apart - tight.certificate.radius
