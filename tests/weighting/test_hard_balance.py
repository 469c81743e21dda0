"""Constraints on an imbalance: weights with a backward error, and no release."""

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.conformance import check_program
from dp2erm_cvx.conformance.run import CheckStatus
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import CalibrationError, InfeasibleError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.weights import describe
from dp2erm_cvx.solve import solve

N, P = 120, 3
DOMAIN = Domain(1.0, 1.0)


@scheme(tolerance=0.02, shift=0.0)
def within(w, records, tolerance, shift):
    """Least dispersion with the imbalance of the arms within a tolerance (Zubizarreta 2015)."""
    n = records.n
    imbalance = records.signed.T @ w / n - shift
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1)), [cp.sum(w) == n, w >= 0, cp.abs(imbalance) <= tolerance]
    )


def table(seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (N, P)) / np.sqrt(P)
    a = (rng.random(N) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    return X, a, rng.uniform(-1, 1, N)


def reference(X, a, tolerance):
    w = cp.Variable(N)
    imbalance = ((2 * a - 1)[:, None] * X).T @ w / N
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1)), [cp.sum(w) == N, w >= 0, cp.abs(imbalance) <= tolerance]
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return w.value


@pytest.mark.parametrize("tolerance", [0.02, 0.0])
def test_weights_meet_the_constraints_and_are_those_of_cvxpy(tolerance):
    X, a, y = table()
    records = DOMAIN.records(X, a, y)
    weights = solve(within(tolerance=tolerance).resolve(DOMAIN.space).instance(records)).value
    assert np.abs(weights - reference(X, a, tolerance)).sum() <= 1e-6 * N
    imbalance = np.abs(((2 * a - 1)[:, None] * X).T @ weights) / N
    assert np.max(imbalance) <= tolerance + 1e-8


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_no_release_rests_on_them(shift):
    """Whether they have a solution is a fact of the records, which a refusal would tell."""
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), within(shift=shift), "arm_means")
    with pytest.raises(CalibrationError, match="within has no stability bound"):
        model.plan(N, P)


def test_a_backward_error_stands_in_the_place_of_a_distance():
    rows = dict(describe(within(), Universe(DOMAIN, N, P)))
    assert "backward error in place of a distance" in rows["certificate"]


def test_records_that_no_weights_meet_the_constraints_of_are_told():
    _, a, y = table()
    program = within(shift=0.3).at(Universe(DOMAIN, N, P))
    alike = DOMAIN.records(np.zeros((N, P)), a, y)
    with pytest.raises(InfeasibleError, match="cannot be balanced"):
        solve(program.instance(alike))


@pytest.mark.slow
def test_its_checks_find_no_fault():
    for report in check_program(within):
        assert not report.of(CheckStatus.FAILED), str(report)
