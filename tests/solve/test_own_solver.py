"""Solvers that nobody here wrote: what they return is judged, and nothing that they say is believed."""

import json
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.errors import CertificateError, SolverError
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.program import scheme
from dp2erm_cvx.solve import SCS, Clarabel, OwnSolver, solve, solvers
from dp2erm_cvx.solve.certificate import certify
from tests.command_line import run
from tests.helpers import bind, make_domain, make_records

RECORDS = make_records(60, 3)
WEIGHTS = bind(EntropyBalancing(ridge=1.0), RECORDS)


def honest(problem):
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)


def sloppy(problem):
    problem.solve(solver="SCS", eps=1e-2)


def liar(problem):
    problem.solve(solver="CLARABEL")
    for variable in problem.variables():
        variable.value = np.ones(variable.shape)


def silent(problem):
    """Leaves nothing behind."""


def broken(problem):
    raise ZeroDivisionError("record 7")


def own(function):
    return OwnSolver(function, function.__name__)


def test_an_own_solver_is_certified_as_any_other():
    result = solve(WEIGHTS, solver=own(honest), polish=False, tolerance=1e-6)
    assert result.certified
    assert result.solver == "honest"
    assert np.sum(np.abs(result.value - solve(WEIGHTS).value)) <= result.certificate.output_radius + 1e-9
    # what another solve left is no answer, and an error of its own is named without its text
    for function, told in ((silent, "honest returned no point"), (broken, "honest raised ZeroDivisionError")):
        with pytest.raises(SolverError, match=told) as caught:
            solve(WEIGHTS, solver=OwnSolver(function, "honest"))
        assert "record" not in str(caught.value)


@pytest.mark.parametrize("function", [sloppy, liar])
def test_one_that_says_solved_and_is_not_is_refused(function):
    result = solve(WEIGHTS, solver=own(function), polish=False, throw=False)
    assert result.status == "solved"
    assert not result.certified
    exact = solve(WEIGHTS).value
    assert np.sum(np.abs(result.value - exact)) <= result.certificate.output_radius
    with pytest.raises(CertificateError, match=function.__name__):
        solve(WEIGHTS, solver=own(function), polish=False)
    # a few steps of Newton mend either of them
    assert solve(WEIGHTS, solver=own(function)).certified


@pytest.mark.parametrize("left", [np.zeros, lambda shape: np.zeros(1), lambda shape: np.full(shape, "none")])
def test_a_private_fit_goes_on_where_an_own_solver_does_not_certify(left):
    def leaves(problem):
        for variable in problem.variables():
            variable.save_value(left(variable.shape))

    stages = "entropy_balancing", "arm_means"
    model = PrivateTwoStageERM(make_domain(), Budget(1.0), *stages, solver=own(leaves))
    model.fit(RECORDS.covariates, RECORDS.a, RECORDS.y)
    assert model.release_.private
    assert model.private_workings_.certified()


@scheme(rho=1.0)
def unread(w, records, rho):
    """Absolute values inside of a norm, which only a duality gap can judge."""
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * cp.norm(cp.abs(records.signed.T @ w))))


BY_GAP = bind(unread(), RECORDS)


@pytest.mark.parametrize("settings", [Clarabel(), SCS()])
def test_a_gap_uses_the_solvers_own_dual_point_first(settings, monkeypatch):
    monkeypatch.setattr("dp2erm_cvx.solve.certificate.own_dual", lambda instance: pytest.fail("not needed"))
    result = solve(BY_GAP, solver=settings)
    assert (result.certificate.basis, result.certificate.dual) == ("duality gap", settings.name)


def test_where_the_solvers_dual_point_does_not_suffice_the_certificate_finds_its_own():
    result = solve(BY_GAP, solver=SCS(eps=3e-2), throw=False)
    assert result.certificate.dual == "certificate"
    exact = solve(BY_GAP, solver=Clarabel(tol=1e-12)).value
    assert np.sum(np.abs(result.value - exact)) <= result.certificate.output_radius
    assert certify(BY_GAP, result.point).dual == "certificate"


def test_the_gap_of_a_dual_point_is_never_below_that_of_the_optimum():
    """A bound by a sloppy dual point is a lower bound all the same."""
    best = solvers.own_dual(BY_GAP)
    compiled = solvers.compiled_for(BY_GAP, "scs")
    for eps in (1e-1, 1e-2, 1e-4):
        rough = solvers.solved_with_dual(compiled.problem, "SCS", SCS(eps=eps).options())
        assert rough.lower <= best.lower + 1e-7 * abs(best.lower)


def test_the_command_takes_files_of_programs_and_of_solvers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import cvxpy as cp\nfrom dp2erm_cvx.program import scheme\n\n"
        '@scheme(penalty=1.0)\ndef near_one(w, records, penalty):\n    """Near 1."""\n'
        "    balance = cp.sum_squares(records.signed.T @ w) / records.n\n"
        "    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + penalty * balance))\n\n"
        "def my_solver(problem):\n    problem.solve(solver='OSQP', eps_abs=1e-9, eps_rel=1e-9)\n"
    )
    words = ("certify", "--n", "60", "--program", "mine.py", "--solver", "mine.py:my_solver", "--json")
    (row,) = json.loads(run(*words).stdout)
    assert (row["program"], row["certified"]) == ("near_one", True)
