"""Solver settings, and which of them certify every dataset of the universe."""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import cvxpy as cp

from dp2erm_cvx.errors import ProgramError, SolverError
from dp2erm_cvx.public import check_settings, setting, whole_number


class Status(enum.StrEnum):
    """Status that a solver returns. Only a certificate makes its point a solution."""

    SOLVED = "solved"
    INACCURATE = "inaccurate"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    LIMIT = "limit"
    FAILED = "failed"


#: CVXPY's statuses, compared by equality. Anything else is a failure.
CVXPY_STATUS: dict[str, Status] = {
    "optimal": Status.SOLVED,
    "optimal_inaccurate": Status.INACCURATE,
    "infeasible": Status.INFEASIBLE,
    "infeasible_inaccurate": Status.INFEASIBLE,
    "unbounded": Status.UNBOUNDED,
    "unbounded_inaccurate": Status.UNBOUNDED,
    "infeasible_or_unbounded": Status.INFEASIBLE,
    "user_limit": Status.LIMIT,
}


@dataclass(frozen=True)
class Solver:
    """Base of all settings. ``name`` is what a user types. Raises DeclarationError on an invalid setting."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class ConicSolver(Solver):
    """A solver reached through the CVXPY declaration."""

    cvxpy_name: ClassVar[str]
    quadratic_only: ClassVar[bool] = False
    #: The keyword arguments of ``cvxpy.Problem.solve`` that a setting is.
    keywords: ClassVar[tuple[tuple[str, str], ...]] = ()

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``cvxpy.Problem.solve``."""
        return {word: getattr(self, name) for name, word in self.keywords}

    def run(self, problem: Any) -> None:
        """Leave values in the variables of a ``cvxpy.Problem`` whose data are loaded."""
        # cold, because a warm start biases what a first-order method returns
        problem.solve(solver=self.cvxpy_name, warm_start=False, **self.options())


@dataclass(frozen=True)
class OwnSolver(ConicSolver):
    """Any function ``solve(problem)`` that leaves values in the variables of a loaded ``cvxpy.Problem``.

    Nothing that it says is believed: its point is judged as every other one. ``title`` is its name.
    """

    function: Callable[[Any], object]
    title: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """``title``."""
        return self.title

    def run(self, problem: Any) -> None:
        """Call the function. Raises SolverError with the type of whatever it raises."""
        try:
            self.function(problem)
        except (ProgramError, cp.SolverError):
            raise
        except Exception as error:  # of an author's own code: anything
            raise SolverError(f"{self.name} raised {type(error).__name__}: choose another solver") from None


@dataclass(frozen=True)
class Clarabel(ConicSolver):
    """Interior point, exact to ``tol`` where the cone allows."""

    tol: float = setting(1e-10, above=0)
    max_iterations: int = setting(200, whole_number, at_least=0)
    name = "clarabel"
    cvxpy_name = "CLARABEL"
    keywords = (
        *(("tol", f"tol_{of}") for of in ("gap_abs", "gap_rel", "feas")),
        ("max_iterations", "max_iter"),
    )


@dataclass(frozen=True)
class SCS(ConicSolver):
    """First-order splitting; always started cold."""

    eps: float = setting(1e-9, above=0)
    max_iterations: int = setting(100_000, whole_number, at_least=0)
    name = "scs"
    cvxpy_name = "SCS"
    keywords = ("eps", "eps_abs"), ("eps", "eps_rel"), ("max_iterations", "max_iters")


@dataclass(frozen=True)
class OSQP(ConicSolver):
    """First-order splitting for quadratic programs."""

    eps: float = setting(1e-9, above=0)
    max_iterations: int = setting(100_000, whole_number, at_least=0)
    name = "osqp"
    cvxpy_name = "OSQP"
    quadratic_only = True
    keywords = ("eps", "eps_abs"), ("eps", "eps_rel"), ("max_iterations", "max_iter")


@dataclass(frozen=True)
class Newton(Solver):
    """Semismooth Newton on the program's own smooth-plus-prox form; no CVXPY involved."""

    max_iterations: int = setting(100, whole_number, at_least=0)
    name = "newton"


@dataclass(frozen=True)
class ProjectedGradient(Solver):
    """Accelerated projected (prox-) gradient descent with restarts; the paper solves its rules so."""

    max_iterations: int = setting(20_000, whole_number, at_least=0)
    name = "projected_gradient"


@dataclass(frozen=True)
class FirstCertified(Solver):
    """Try ``solvers`` in order and take the first certified solution, which names who found it."""

    solvers: tuple[Solver, ...] = field(default=(Newton(), ProjectedGradient(), Clarabel(), SCS()))
    name = "first_certified"


#: Solvers with their usual settings, by name.
SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver for solver in (Newton, ProjectedGradient, Clarabel, SCS, OSQP, FirstCertified)
}


def solver_by_name(solver: str | Solver) -> Solver:
    """Settings as they are, or from a name of ``SOLVERS`` or of a solver that CVXPY finds installed.

    Raises SolverError naming the known solvers.
    """
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str):
        if solver in SOLVERS:
            return SOLVERS[solver]()
        if solver.upper() in cp.installed_solvers():
            return OwnSolver(partial(_solved_by, solver.upper()), solver)
    installed = [name.lower() for name in cp.installed_solvers() if name.lower() not in SOLVERS]
    raise SolverError(f"unknown solver {solver!r}: choose one of {', '.join((*SOLVERS, *installed))}")


def _solved_by(name: str, problem: Any) -> None:
    try:
        problem.get_problem_data(name)
    except cp.SolverError:
        raise ProgramError(f"{name.lower()} takes no problem of these cones: choose another solver") from None
    with _printing_to_stderr():
        problem.solve(solver=name, warm_start=False)


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Output of compiled code goes to stderr: HiGHS prints a banner at any setting."""
    flush: Any = lambda _: None  # noqa: E731
    with contextlib.suppress(OSError, TypeError, AttributeError):
        flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


#: Tried in this order, with the same noise, after a solver that is named.
CERTIFYING = (Newton(), ProjectedGradient())


def private_solver(solver: str | Solver) -> Solver:
    """Settings for a private fit: a name stands for that solver followed by ``CERTIFYING``.

    So does an :class:`OwnSolver`; any other settings object is taken as it is. Raises SolverError naming the
    known solvers.
    """
    settings = solver_by_name(solver)
    alone = isinstance(solver, Solver) and not isinstance(solver, OwnSolver)
    if alone or isinstance(settings, FirstCertified):
        return settings
    return FirstCertified((settings, *(other for other in CERTIFYING if other != settings)))


def by_design(settings: Solver) -> bool:
    """True if the settings go at least as far as ``CERTIFYING``: a public property of the declaration."""
    if not isinstance(settings, FirstCertified):
        return False
    return all(
        any(
            isinstance(solver, type(needed)) and solver.max_iterations >= needed.max_iterations
            for solver in settings.solvers
        )
        for needed in CERTIFYING
    )
