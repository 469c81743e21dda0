"""Whatever a solver does: a reason in words, the next solver, and no clock in a private fit."""

import ctypes
import os
import threading
import time
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.errors import CertificateError, DeclarationError, ProgramError, SolverError
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing, entropy_balancing_hard
from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import Linear
from dp2erm_cvx.program.registry import build, first_stages
from dp2erm_cvx.report.tables import certificates
from dp2erm_cvx.solve import FirstCertified, Newton, Status, apart, solve, solvers
from dp2erm_cvx.solve.solvers import OSQP, SCS, Clarabel, OwnSolver
from tests.helpers import bind, make_domain, make_records

RECORDS = make_records(60, 3)
WEIGHTS = bind(entropy_balancing(ridge=1.0), RECORDS)
HARD = bind(entropy_balancing_hard(), RECORDS)


def own(function: Any) -> OwnSolver:
    return OwnSolver(function, function.__name__)


def filled(problem: Any, value: Any) -> None:
    """Leave something in the place of every value, whatever its shape."""
    for variable in problem.variables():
        variable.save_value(value(variable.shape))


def good(problem: Any) -> None:
    problem.solve(solver="CLARABEL")


def worse(problem: Any) -> None:
    """A point that is feasible and far away."""
    good(problem)
    for variable in problem.variables():
        variable.save_value(np.zeros(variable.shape))


def not_numbers(problem: Any) -> None:
    filled(problem, lambda shape: np.full(shape, np.nan))


def infinite(problem: Any) -> None:
    filled(problem, lambda shape: np.full(shape, np.inf))


def huge(problem: Any) -> None:
    filled(problem, lambda shape: np.full(shape, 1e300))


def misshapen(problem: Any) -> None:
    filled(problem, lambda shape: np.ones(3))


def texts(problem: Any) -> None:
    filled(problem, lambda shape: "record 7")


def objects(problem: Any) -> None:
    filled(problem, lambda shape: object())


def raising(problem: Any) -> None:
    raise ZeroDivisionError("record 7")


def singular(problem: Any) -> None:
    raise np.linalg.LinAlgError("record 7")


def unknown_attribute(problem: Any) -> None:
    problem.no_such_thing()


def leaving(problem: Any) -> None:
    raise SystemExit(3)


def stale(problem: Any) -> None:
    """Leaves what was there."""


NO_POINT = (not_numbers, infinite, misshapen, texts, objects, stale)
RAISING = (raising, singular, unknown_attribute, leaving)


@pytest.mark.parametrize("function", NO_POINT + RAISING, ids=lambda one: one.__name__)
def test_a_solver_without_a_point_is_a_reason_in_words_and_the_next_is_tried(function):
    left = solve(WEIGHTS, solver=own(function), throw=False)
    assert left.substituted
    assert not left.certified
    (reason,) = left.failures
    assert function.__name__ in reason
    assert "choose another solver" in reason
    assert "record" not in reason
    with pytest.raises(SolverError, match=function.__name__):
        solve(WEIGHTS, solver=own(function))
    after = solve(WEIGHTS, solver=FirstCertified((own(function), Newton())))
    assert (after.certified, after.solver, after.failures) == (True, "newton", (reason,))


def test_numbers_too_large_to_compute_with_are_not_certified():
    left = solve(WEIGHTS, solver=own(huge), polish=False, throw=False)
    assert not left.certified
    with pytest.raises(CertificateError, match="huge"):
        solve(WEIGHTS, solver=own(huge), polish=False)


@pytest.mark.parametrize("names", ["good worse", "worse good", "worse good worse raising"])
def test_the_best_point_is_kept_whoever_comes_after(names):
    functions = [globals()[name] for name in names.split()]
    listed = FirstCertified(tuple(own(function) for function in functions))
    how: dict[str, Any] = {"tolerance": 1e-15, "polish": False, "throw": False}
    best = solve(WEIGHTS, solver=listed, **how)
    assert best.solver == "good"
    assert not best.certified
    assert best.certificate.relative_radius < 1e-3
    assert solve(WEIGHTS, solver=own(worse), **how).certificate.relative_radius > 0.1
    assert len(best.failures) == names.count("raising")


def test_a_solver_that_does_not_apply_is_passed_over_in_a_list():
    listed = FirstCertified((OSQP(), Newton()))
    solution = solve(WEIGHTS, solver=listed)
    assert solution.solver == "newton"
    assert "quadratic programs only" in solution.failures[0]
    with pytest.raises(ProgramError, match="quadratic"):
        solve(WEIGHTS, solver=FirstCertified((OSQP(),)), throw=False)


def test_one_that_raises_at_its_second_call_is_one_row():
    calls = []

    def second(problem: Any) -> None:
        calls.append(problem)
        if len(calls) == 2:
            raise RuntimeError("record 7")
        good(problem)

    for number in (1, 2, 3):
        (row,) = certificates("weights", WEIGHTS, [own(second)], None)
        assert row.certified is (number != 2)
        assert ("raised RuntimeError" in row.note) is (number == 2)


def sleeping(problem: Any) -> None:
    """Never comes back."""
    threading.Event().wait()


def exiting(problem: Any) -> None:
    os._exit(5)


def crashing(problem: Any) -> None:
    ctypes.string_at(0)


def printing(problem: Any) -> None:
    os.write(1, b"record 7\n" * 1_000_000)
    print("record 7\n" * 100_000)
    good(problem)


@pytest.mark.slow
def test_a_process_of_its_own_ends_what_does_not_end_by_itself(capfd):
    limits = {"sleeping": 0.5}
    told = {
        "sleeping": "gave no answer within 0.5 s and was ended",
        "exiting": "ended its process without an answer",
        "crashing": "ended its process without an answer",
        "raising": "raised ZeroDivisionError",
        "leaving": "raised SystemExit",
        "not_numbers": "no finite numbers",
    }
    for function in (sleeping, exiting, crashing, raising, leaving, not_numbers):
        name = function.__name__
        listed = FirstCertified((own(function), Newton()))
        solution = solve(WEIGHTS, solver=listed, seconds=limits.get(name, 60.0))
        assert (solution.certified, solution.solver) == (True, "newton")
        assert told[name] in solution.failures[0]
        assert "record" not in solution.failures[0]
    heard = solve(WEIGHTS, solver=own(printing), tolerance=1e-4, seconds=60.0)
    assert heard.certified
    assert capfd.readouterr() == ("", "")


def test_the_process_gives_what_the_solver_gives_here():
    instances = [WEIGHTS, HARD, bind(entropy_balancing(ridge=1.0), make_records(60, 3, seed=4))]
    for settings in (Clarabel(), SCS(eps=1e-6)):
        for instance in instances:
            how: dict[str, Any] = {"solver": settings, "polish": False, "throw": False}
            here, there = (solve(instance, seconds=limit, **how) for limit in (None, 60.0))
            assert (there.status, there.iterations) == (here.status, here.iterations)
            np.testing.assert_allclose(there.value, here.value, rtol=0, atol=1e-12)


def test_more_problems_than_the_process_keeps_are_solved_all_the_same(monkeypatch):
    monkeypatch.setattr(apart, "_KEPT", 1)
    bound = [bind(entropy_balancing(ridge=ridge), RECORDS) for ridge in (1.0, 2.0)]
    for _ in range(2):
        for instance in bound:
            assert solve(instance, solver="clarabel", tolerance=1e-4, seconds=60.0).certified


def test_what_cannot_be_sent_runs_here():
    lock = threading.Lock()

    def locked(problem: Any) -> None:
        with lock:
            good(problem)

    assert solve(WEIGHTS, solver=own(locked), tolerance=1e-4, seconds=60.0).certified


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_positive_number(seconds):
    with pytest.raises(DeclarationError, match="seconds"):
        solve(WEIGHTS, seconds=seconds)


def test_a_table_of_solvers_has_a_row_with_a_reason_for_each():
    tried = [own(function) for function in (raising, not_numbers, good, worse)]
    rows = certificates("weights", WEIGHTS, [*tried, SCS(max_iterations=3)], None)
    assert [row.solver for row in rows] == ["raising", "not_numbers", "good", "worse", "scs"]
    assert [row.status for row in rows[:2]] == ["failed", "failed"]
    assert all(row.note for row in rows if not row.certified)
    assert not any(row.note for row in rows if row.certified)
    limited = solve(WEIGHTS, solver=SCS(max_iterations=3), polish=False, throw=False)
    assert limited.status is Status.INACCURATE or limited.status is Status.LIMIT


def test_a_row_that_is_not_certified_says_what_was_claimed_and_proved():
    stiff = bind(build(first_stages(), "ipw_logistic", ridge=1e-13), RECORDS)
    rows = certificates("stiff", stiff, [Newton(max_iterations=1)], None)
    assert rows[0].note.startswith(
        "newton reached its limit of iterations; its relative error is proved to be at most "
    )
    assert rows[0].note.endswith("raise the ridge, or try more iterations or another solver")


class Leaping:
    """A clock that leaps by an hour at every look."""

    seconds = 0.0

    def __call__(self) -> float:
        """The seconds so far."""
        self.seconds += 3600.0
        return self.seconds


@pytest.mark.one_row_in(5)
@pytest.mark.parametrize(
    "solver", ["first_certified", "clarabel", own(raising), own(not_numbers), own(huge)]
)
def test_no_clock_decides_a_private_fit(monkeypatch, solver):
    def fitted() -> Any:
        model = PrivateTwoStageERM(
            make_domain(), Budget(1.0), "entropy_balancing", "arm_means", solver=solver, seed=1
        )
        return model.fit(RECORDS.covariates, RECORDS.a, RECORDS.y).release_.theta

    monkeypatch.setattr(
        solvers, "run_apart", lambda *_: pytest.fail("a private fit has no other process")
    )
    first = fitted()
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        monkeypatch.setattr(time, name, Leaping())
    np.testing.assert_array_equal(fitted(), first)


@scheme(rho=1.0)
def squares(w: Any, records: Any, rho: float) -> Any:
    """Weights near 1 under a stiff penalty."""
    penalty = rho * cp.sum_squares(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + penalty))


@scheme(rho=1.0)
def inverse(w: Any, records: Any, rho: float) -> Any:
    """Inverse weights under a stiff penalty."""
    penalty = rho * cp.sum_squares(records.signed.T @ w)
    return cp.Problem(cp.Minimize(cp.sum(cp.inv_pos(w)) + penalty), [w >= 0.01])


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("declared", [squares, inverse])
def test_stiff_penalties_on_constant_covariates_end_without_an_error(declared):
    X = np.full((20, 2), 0.5 / np.sqrt(2))
    records = Domain(1.0, 1.0).records(X, np.arange(20) % 2, np.zeros(20))
    for exponent in (16.0, 17.0, 18.0, 19.0):
        solution = solve(declared(rho=10.0**exponent).instance(records), throw=False)
        assert np.all(np.isfinite(solution.value))
        # both arms are alike, so that weights 1 are exact at every penalty
        apart = float(np.sum(np.abs(solution.value - 1.0)))
        assert not solution.certified or apart <= 1e-8 * len(X)


def test_a_kernel_of_equal_records_at_a_tiny_ridge_ends_without_an_error():
    records = Domain(1.0, 1.0).records(
        np.tile([[0.5, 0.5]], (30, 1)), np.arange(30) % 2, np.zeros(30)
    )
    instance = build(first_stages(), "mmd", kernel=Linear(), ridge=1e-9, cap=3.0).instance(records)
    for name in ("newton", "projected_gradient", "clarabel"):
        assert np.all(np.isfinite(solve(instance, solver=name, throw=False).value))
