"""Every way a solve can fail, by our solvers or another: a typed error, and never a silent wrong
answer.
"""

import contextlib
import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CertificateError, DeclarationError, ProgramError, SolverError
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.program import Declaration, scheme
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.program.registry import build, first_stages, programs
from dp2erm_cvx.solve import FirstCertified, Newton, ProjectedGradient, Status, solve
from dp2erm_cvx.solve.solvers import OSQP, SCS, Clarabel, OwnSolver, by_design, private_solver
from tests.command_line import run
from tests.helpers import bind, make_domain, make_records, output_distance, penalized_rule
from tests.plugins.literature import poisson

PROGRAMS: dict[str, Any] = dict(programs())
RECORDS = make_records(60, 3)


def norm(theta):
    return cp.norm(theta, 2)


def bound(name, **settings):
    return bind(PROGRAMS[name](**settings), RECORDS)


def user(expression):
    return bind(penalized_rule(expression)(), RECORDS)


def not_dpp(data):
    """Convex, but it would be solved again with old data."""
    theta = cp.Variable(3)
    return Declaration(data("w", nonneg=True) @ cp.logistic(-(data("X") @ theta)), {"theta": theta})


ONCE, SHORT = Newton(max_iterations=1), {"coefficient": (0.1, 0.2)}
#: Of programs, of solvers, and of expressions for a penalty.
REFUSED = [
    (lambda: solve(bound("uniform"), solver="gurobi"), SolverError, r"'gurobi'.*newton.*clarabel"),
    (lambda: build(first_stages(), "ebw"), ProgramError, r"'ebw'.*entropy_balancing"),
    (
        lambda: build(first_stages(), "entropy_balancing", **{"lambda": 1.0}),
        DeclarationError,
        "ridge",
    ),
    (lambda: bound("ipw_known", **SHORT), DeclarationError, "2 entries for 4"),
    (lambda: Compiled(not_dpp, {"w": np.ones(5), "X": np.ones((5, 3))}), ProgramError, "not DPP"),
    (
        lambda: solve(bound("paper_entropy_balancing", ridge=0.01), solver=ONCE),
        CertificateError,
        "status limit",
    ),
    # which no gap is measured for
    (
        lambda: user(cp.log_sum_exp),
        DeclarationError,
        r"log_sum_exp\(theta\): no penalty that is read",
    ),
]
for name in (
    "ipw_logistic",
    "entropy_balancing",
    "paper_entropy_balancing",
    "entropy_balancing_hard",
):
    REFUSED.append((lambda name=name: solve(bound(name), solver=OSQP()), ProgramError, "quadratic"))
for solver in (Newton(), ProjectedGradient()):
    REFUSED.append(
        (lambda solver=solver: solve(user(norm), solver=solver), ProgramError, "clarabel")
    )
for expression in (
    lambda theta: cp.sqrt(norm(theta)),  # not convex
    lambda theta: -cp.sum_squares(theta),  # concave
    lambda theta: cp.norm(theta, 1) * norm(theta),  # convex or not, not DCP
    lambda theta: cp.quad_form(theta[:2], np.array([[1.0, 2.0], [2.0, 1.0]])),
):
    REFUSED.append((lambda one=expression: user(one), DeclarationError, "not convex"))
SIGNS = np.diag([1.0, -1.0])
REFUSED += [
    # CVXPY takes the author's word for this matrix, and is not asked
    (
        lambda: user(lambda theta: cp.quad_form(theta[:2], SIGNS, assume_PSD=True)),
        DeclarationError,
        "negative eigenvalue",
    ),
    # infinite somewhere, and a set in disguise
    (
        lambda: user(lambda theta: -cp.sum(cp.log(1 - theta))),
        DeclarationError,
        "no penalty that is read",
    ),
    (
        lambda: user(lambda theta: cp.sum(cp.inv_pos(theta + 2))),
        DeclarationError,
        "as a constraint",
    ),
]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_cannot_be_solved_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call()


UNCHECKED = {
    "exponential": cp.log_sum_exp,
    # by default CVXPY states powers through second-order cones
    "power": lambda theta: cp.sum(cp.power(theta, 3.3, approx=False)),
    "semidefinite": lambda theta: cp.lambda_max(cp.diag(theta)),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("cone", UNCHECKED)
def test_what_no_gap_is_measured_for_is_refused_when_it_is_declared(cone):
    with pytest.raises(
        DeclarationError, match="no penalty that is read: linear and quadratic terms"
    ) as caught:
        penalized_rule(UNCHECKED[cone])
    assert "\n" not in str(caught.value)
    for number in (lambda theta: 0, norm, lambda theta: cp.huber(cp.sum(theta))):
        penalized_rule(number)()


CHAIN = cp.reductions.solvers.solving_chain.SolvingChain


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    "solver", [SCS(max_iterations=1000), Clarabel(), "first_certified"], ids=str
)
def test_a_solver_that_prints_residuals_is_not_heard(capfd, monkeypatch, solver):
    instance = user(norm)
    whole, solves = CHAIN.solve_via_data, []

    def loud(*data, **settings):
        print("residual of record 7")
        print("residual of record 8", file=sys.stderr)
        warnings.warn("the solution may be inaccurate", stacklevel=1)
        solves.append(whole(*data, **settings))
        return solves[-1]

    monkeypatch.setattr(CHAIN, "solve_via_data", loud)
    solve(instance, solver=solver, throw=False)
    assert solves
    heard = capfd.readouterr()
    assert heard.out == heard.err == ""


def test_data_too_large_for_a_parameter_are_refused_or_embedded():
    program, cache = (
        PROGRAMS["ipw_logistic"](ridge=0.1),
        sys.modules["dp2erm_cvx.solve.solvers"]._COMPILED,
    )
    instance = program.instance(make_records(1300, 10))
    assert Compiled.cost(instance.data) > 1.5e7
    with pytest.raises(ProgramError, match="GB"):
        Compiled(program.declare, instance.data)
    embedded = Compiled(program.declare, instance.data, embed=True)
    # no vector of n: with n multipliers CVXPY needs memory of the order n^2
    assert set(embedded.parameters) == {"curvature"}
    assert "multipliers" not in instance.data
    # a solve chooses to embed by itself, and does not keep the data afterwards
    kept = len(cache)
    raw = solve(instance, solver="clarabel", polish=False, throw=False)
    assert len(cache) == kept
    truth = solve(instance)
    distance = output_distance(program, raw.value, truth.value)
    assert distance <= raw.certificate.output_radius + truth.certificate.output_radius


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ("optimal_inaccurate", Status.INACCURATE),
        ("user_limit", Status.LIMIT),
        ("new", Status.FAILED),
    ],
)
def test_a_claimed_status_neither_certifies_nor_refuses(monkeypatch, claim, status):
    instance = bound("ipw_logistic", ridge=0.05)
    monkeypatch.setattr(cp.Problem, "status", claim)
    good = solve(instance, solver="clarabel")
    assert good.status is status
    assert good.certified
    monkeypatch.setattr(cp.Problem, "status", "optimal")
    poor = solve(instance, solver=SCS(eps=1e-2), polish=False, throw=False)
    assert poor.status is Status.SOLVED
    assert not poor.certified
    with pytest.raises(CertificateError):
        solve(instance, solver=SCS(eps=1e-2), polish=False)


@pytest.mark.parametrize("kind", [cp.SolverError, ValueError, OverflowError])
def test_a_solver_that_raises_becomes_a_typed_error(monkeypatch, kind):
    def fail(self, *arguments, **settings):
        raise kind("private numbers inside")

    monkeypatch.setattr(cp.Problem, "solve", fail)
    instance = bound("ipw_logistic")
    with pytest.raises(SolverError, match="another solver") as caught:
        solve(instance, solver="clarabel")
    assert "private numbers" not in str(caught.value)
    assert caught.value.__context__ is None
    assert solve(instance, solver=FirstCertified((Clarabel(), Newton()))).solver == "newton"
    with pytest.raises(SolverError, match="none of the listed"):
        solve(instance, solver=FirstCertified((Clarabel(), SCS())))


def test_solvers_that_go_as_far_as_the_usual_ones_certify_by_design():
    assert by_design(private_solver("clarabel"))
    assert by_design(FirstCertified((ProjectedGradient(30_000), Newton(200))))
    for less in (
        Newton(),
        FirstCertified((Newton(),)),
        FirstCertified((Newton(99), ProjectedGradient())),
    ):
        assert not by_design(less)


@pytest.mark.parametrize(
    "solver", [Newton(), ProjectedGradient(200), Clarabel(), SCS(max_iterations=500)]
)
def test_separable_arms_without_a_ridge_are_not_certified(solver):
    X = RECORDS.X.copy()
    X[:, 1] = np.where(RECORDS.a == 1, 0.9, -0.9)
    separable = Records(X, RECORDS.a, RECORDS.y, RECORDS.space)
    assert solve(bind(PROGRAMS["ipw_logistic"](ridge=0.01), separable)).certified
    with contextlib.suppress(SolverError):
        instance = bind(PROGRAMS["ipw_logistic"](ridge=0.0), separable)
        assert not solve(instance, solver=solver, throw=False).certified


def test_no_repr_or_message_holds_data():
    X, y = RECORDS.X.copy(), RECORDS.y.copy()
    X[0, 1] = y[0] = 0.123456789012
    records = Records(X, RECORDS.a, y, make_domain(3).space)
    for name in ("ipw_logistic", "itr"):
        instance = bind(PROGRAMS[name](), records)
        solution = solve(instance)
        for text in (*map(repr, (records, instance, solution)), str(solution), solution.advice()):
            assert "0.1234" not in text
            assert "array" not in text
            for value in (*solution.value[:3], *solution.point):
                assert f"{value:.6g}" not in text
    short = solve(bound("ipw_logistic"), solver=Newton(1), throw=False)
    assert not any(character.isdigit() for character in short.advice().replace("1e-09", ""))


def test_a_curvature_without_a_bound_is_left_to_conic_solvers():
    counts = poisson(radius=math.inf)
    instance = counts.instance(make_records(40, 2), np.ones(40), gamma=0.1)
    for name in ("newton", "projected_gradient"):
        with pytest.raises(SolverError, match="has no bound: declare a finite radius"):
            solve(instance, solver=name)
    result = solve(instance, tolerance=1e-5)
    assert result.solver == "clarabel"
    assert result.certified


WEIGHTS = bind(entropy_balancing(ridge=1.0), RECORDS)


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
    result = solve(WEIGHTS, solver=own(honest), polish=False, tolerance=1e-4)
    assert result.certified
    assert result.solver == "honest"
    assert (
        np.sum(np.abs(result.value - solve(WEIGHTS).value))
        <= result.certificate.output_radius + 1e-9
    )
    # what another solve left is no answer, and an error of its own is named without its text
    for function, told in (
        (silent, "honest claims .* no finite numbers"),
        (broken, "honest raised ZeroDivisionError"),
    ):
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


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize(
    "left", [np.zeros, lambda shape: np.zeros(1), lambda shape: np.full(shape, "none")]
)
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
    """The square of a 1-norm, which only a duality gap can judge."""
    imbalance = records.signed.T @ w / records.n
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + rho * cp.square(cp.norm(imbalance, 1))))


BY_GAP = bind(unread(), RECORDS)


@pytest.mark.parametrize("settings", [Clarabel(), SCS(), SCS(eps=3e-2)], ids=str)
def test_a_gap_judges_every_solvers_point_by_the_judges_own_solve(settings):
    exact = solve(BY_GAP, solver=Clarabel(tol=1e-12))
    result = solve(BY_GAP, solver=settings, throw=False)
    assert result.certificate.basis == "duality gap"
    both = result.certificate.output_radius + exact.certificate.output_radius
    assert np.sum(np.abs(result.value - exact.value)) <= both


def test_the_command_takes_files_of_programs_and_of_solvers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import cvxpy as cp\nfrom dp2erm_cvx.program import scheme\n\n"
        '@scheme(penalty=1.0)\ndef near_one(w, records, penalty):\n    """Near 1."""\n'
        "    balance = cp.sum_squares(records.signed.T @ w) / records.n\n"
        "    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + penalty * balance))\n\n"
        "def my_solver(problem):\n    problem.solve(solver='OSQP', eps_abs=1e-9, eps_rel=1e-9)\n"
    )
    words = (
        "certify",
        "--n",
        "60",
        "--program",
        "mine.py",
        "--solver",
        "mine.py:my_solver",
        "--json",
    )
    (row,) = json.loads(run(*words).stdout)
    assert (row["program"], row["certified"]) == ("near_one", True)
