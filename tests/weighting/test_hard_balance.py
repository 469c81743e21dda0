"""Constraints on an imbalance: V is 2n, weights are solved without a certificate, 1 where there are none."""

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.conformance import check_program
from dp2erm_cvx.conformance.run import CheckStatus
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.weights import describe

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
def test_a_release_is_private_with_the_noise_of_all_weights(tolerance):
    X, a, y = table()
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), within(tolerance=tolerance), "arm_means").fit(X, a, y)
    release = model.release_
    assert release.private
    assert release.mechanism.stability == 2 * N
    weights = model.private_workings_.weights.value
    assert np.abs(weights - reference(X, a, tolerance)).sum() <= 1e-6 * N
    imbalance = np.abs(((2 * a - 1)[:, None] * X).T @ weights) / N
    assert np.max(imbalance) <= tolerance + 1e-8


def test_nothing_is_claimed_of_its_weights():
    rows = dict(describe(within(), Universe(DOMAIN, N, P)))
    assert rows["certificate"] == "none is needed: V covers all weights of sum n"
    assert rows["V"].startswith(f"{2 * N} at n = {N}")


def test_weights_are_one_where_no_others_meet_the_constraints():
    """Records far from what is asked are no reason to refuse, which would tell of them."""
    _, a, y = table()
    program = within(shift=0.3).at(Universe(DOMAIN, N, P))
    alike = DOMAIN.records(np.zeros((N, P)), a, y)
    model = program.instance(alike).model
    assert not model.claimed(model.start()).found
    assert np.array_equal(model.output(model.minimized(model.start(), 0)[0]), np.ones(N))


def test_what_no_public_example_can_meet_is_refused_when_planned():
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), within(shift=2.0), "arm_means")
    with pytest.raises(CalibrationError, match="no certified weights on public examples"):
        model.plan(N, P)


def test_its_checks_find_no_fault():
    for report in check_program(within):
        assert not report.of(CheckStatus.FAILED), str(report)
