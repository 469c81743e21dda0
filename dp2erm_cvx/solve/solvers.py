"""Solvers: their settings, which of them certify every dataset, and the declared problem.

That is compiled once per program and shape.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, setting, whole_number
from dp2erm_cvx.errors import ProgramError, SolverError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import PARAMETER_LIMIT, Compiled
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.apart import Left, raised_text, run_apart, run_here
from dp2erm_cvx.solve.conic import ConicForm


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

#: What is said of a solver that left no finite numbers, by the status that it claims.
_NO_POINT = {
    Status.SOLVED: "claims to have solved it and left no finite numbers: choose another solver",
    Status.INACCURATE: (
        "claims an inaccurate solution and left no finite numbers: choose another solver"
    ),
    Status.INFEASIBLE: (
        "says that no point meets the constraints: relax them, or choose another solver"
    ),
    Status.UNBOUNDED: "says that the objective has no least value: declare a ridge or a radius, or "
    "choose another solver",
    Status.LIMIT: (
        "reached its limit of iterations without a point: raise that, or choose another solver"
    ),
    Status.FAILED: "ended without a point (status failed): choose another solver",
}


@dataclass(frozen=True)
class Solver:
    """Base of all settings, whose ``name`` is what a user types.

    Raises DeclarationError on an invalid setting.
    """

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
    """Any function ``solve(problem)`` that leaves values in the variables of a ``cvxpy.Problem``.

    Nothing that it says is believed: its point is judged as every other one.

    Parameters
    ----------
    function
        The function.
    title
        Its name.
    scaled
        Whether it gets the problem in public units, and not as it is declared.
    """

    function: Callable[[Any], object]
    title: str
    scaled: bool = False

    @property
    def name(self) -> str:  # type: ignore[override]
        """``title``."""
        return self.title

    def run(self, problem: Any) -> None:
        """Call the function."""
        self.function(problem)


@dataclass(frozen=True)
class Clarabel(ConicSolver):
    """Interior point, exact to ``tol`` where the cone allows."""

    tol: float = setting(1e-10, above=0)
    max_iterations: int = setting(200, whole_number, at_least=0)
    name = "clarabel"
    cvxpy_name = "CLARABEL"
    keywords = (
        ("tol", "tol_gap_abs"),
        ("tol", "tol_gap_rel"),
        ("tol", "tol_feas"),
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
    """Accelerated projected (prox-) gradient descent with restarts, as the paper solves rules."""

    max_iterations: int = setting(20_000, whole_number, at_least=0)
    name = "projected_gradient"


@dataclass(frozen=True)
class FirstCertified(Solver):
    """Try ``solvers`` in order and take the first certified solution, which names who found it."""

    solvers: tuple[Solver, ...] = field(default=(Newton(), ProjectedGradient(), Clarabel(), SCS()))
    name = "first_certified"


#: Solvers with their usual settings, by name.
SOLVERS: dict[str, type[Solver]] = {
    solver.name: solver
    for solver in (Newton, ProjectedGradient, Clarabel, SCS, OSQP, FirstCertified)
}


def solver_by_name(solver: str | Solver) -> Solver:
    """Settings as they are, or from the name of a known solver or of one that CVXPY finds.

    Parameters
    ----------
    solver
        Settings, or a name.

    Returns
    -------
    Solver

    Raises
    ------
    SolverError
        For any other name; it names the known ones.
    """
    if isinstance(solver, Solver):
        return solver
    if isinstance(solver, str):
        if solver in SOLVERS:
            return SOLVERS[solver]()
        if solver.upper() in cp.installed_solvers():
            return OwnSolver(partial(_solved_by, solver.upper()), solver, scaled=True)
    installed = [name.lower() for name in cp.installed_solvers() if name.lower() not in SOLVERS]
    raise SolverError(
        f"unknown solver {solver!r}: choose one of {', '.join((*SOLVERS, *installed))}"
    )


#: Tried in this order, with the same noise, after a solver that is named.
CERTIFYING = (Newton(), ProjectedGradient())


def private_solver(solver: str | Solver) -> Solver:
    """Settings for a private fit: a name stands for that solver followed by ``CERTIFYING``.

    So does an :class:`OwnSolver`; any other settings object is taken as it is.

    Parameters
    ----------
    solver
        Settings, or a name.

    Returns
    -------
    Solver

    Raises
    ------
    SolverError
        For an unknown name; it names the known ones.
    """
    settings = solver_by_name(solver)
    if isinstance(settings, FirstCertified):
        return settings
    if isinstance(solver, Solver) and not isinstance(solver, OwnSolver):
        return settings
    followers = tuple(certifying for certifying in CERTIFYING if certifying != settings)
    return FirstCertified((settings, *followers))


def by_design(settings: Solver) -> bool:
    """True if the settings go at least as far as ``CERTIFYING``, a property of the declaration."""
    if not isinstance(settings, FirstCertified):
        return False
    return all(_is_reached(settings, needed) for needed in CERTIFYING)


def _is_reached(settings: FirstCertified, needed: Newton | ProjectedGradient) -> bool:
    """True if one of the solvers is the needed one, with as many iterations or more."""
    for solver in settings.solvers:
        if isinstance(solver, type(needed)) and solver.max_iterations >= needed.max_iterations:
            return True
    return False


#: Compiled declarations by program, shapes and solver, the one used last at the end.
_COMPILED: dict[tuple[object, ...], Compiled] = {}
#: How many of them are kept.
_MOST_COMPILED = 16


def compiled_for(instance: Instance, solver: str, *, scaled: bool = False) -> Compiled:
    """The compiled declaration of an instance with its data loaded.

    It is kept for the next data of the same shapes.

    Parameters
    ----------
    instance
        The program on its data.
    solver
        Name of the solver: one problem is kept per solver, because a change of solver recompiles
        it.
    scaled
        Whether the problem is in public units, so that the units of the outcome do not matter to a
        solver.

    Returns
    -------
    Compiled
    """
    data = instance.scaled_data if scaled else instance.data
    if Compiled.cost(data) > PARAMETER_LIMIT:
        embedded = Compiled(instance.program.declare, data, embed=True)
        embedded.load(data)
        return embedded
    shapes = tuple((name, np.shape(value)) for name, value in data.items())
    key = (type(instance.program), instance.program, shapes, solver)
    compiled = _COMPILED.pop(key, None)
    if compiled is None:
        compiled = Compiled(instance.program.declare, data)
    _COMPILED[key] = compiled
    if len(_COMPILED) > _MOST_COMPILED:
        del _COMPILED[next(iter(_COMPILED))]
    compiled.load(data)
    return compiled


def solved_by_cvxpy(
    instance: Instance, settings: ConicSolver, seconds: float | None = None
) -> tuple[Array, Status, int]:
    """Solve an instance by a solver of CVXPY, or by a function of an author's own.

    Parameters
    ----------
    instance
        The program on its data.
    settings
        The solver.
    seconds
        The limit of the solver, which then runs in a process of its own; None for no limit.

    Returns
    -------
    tuple
        A point of the model, its status, and the number of iterations.

    Raises
    ------
    SolverError
        For whatever the solver did instead of leaving a point, in words that hold none of its own:
        those may tell of the records.
    ProgramError
        For a solver of quadratic programs only, of any other program.
    """
    program = instance.program
    scaled = not isinstance(settings, OwnSolver) or settings.scaled
    compiled = _problem_for(instance, settings, scaled=scaled)
    if settings.quadratic_only and not compiled.problem.is_qp():
        raise ProgramError(
            f"{settings.name} solves quadratic programs only; {program.name} is not one"
        )
    left = _run(compiled.problem, settings, seconds, program.name)
    status = _status_of(left)
    values = compiled.values()
    if values is None:
        instance.composite.refuse_infeasible()
        raise SolverError(f"{program.name}: {settings.name} {_NO_POINT[status]}")
    point = _point_of(instance, compiled, values, scaled=scaled)
    if point is None:
        raise SolverError(
            f"{program.name}: {settings.name} left no dual values, or none of the right shape, "
            "from which the solution of this program is read: choose a solver that leaves them, "
            "such as clarabel"
        )
    return point, status, left.iterations


def _problem_for(
    instance: Instance, settings: ConicSolver, *, scaled: bool
) -> Compiled | ConicForm:
    """The declared problem of an instance, or its conic form where a gap judges a quadratic."""
    if scaled and instance.kinked is not None:
        kinked = instance.kinked()
        if kinked.is_quadratic:
            return ConicForm(kinked)
    return compiled_for(instance, settings.name, scaled=scaled)


def _run(problem: Any, settings: ConicSolver, seconds: float | None, program: str) -> Left:
    """Run a solver on a ``cvxpy.Problem``, in silence; SolverError for whatever it raises."""
    problem._clear_solution()  # what another solve left is no answer
    try:
        with _silenced():
            if seconds is None:
                return run_here(problem, settings.run)
            return run_apart(problem, settings.run, seconds, settings.name)
    except (ProgramError, SolverError):
        raise
    except (Exception, SystemExit) as error:  # of foreign code: anything
        text = raised_text(settings.name, type(error).__name__)
        raise SolverError(f"{program}: {text}") from None


def _status_of(left: Left) -> Status:
    """The status that a solver claims; a function of an author's own need not set one."""
    if left.status is None:
        return Status.SOLVED
    return CVXPY_STATUS.get(left.status, Status.FAILED)


def _point_of(
    instance: Instance, compiled: Compiled | ConicForm, values: dict[str, Array], *, scaled: bool
) -> Array | None:
    """The finite point that a program reads from what a solver left; None where it reads none."""
    try:
        if scaled and instance.scaled is not None:
            first = next(iter(values))
            values[first] = instance.unit * values[first]
        point = instance.program.read(instance, values, compiled.duals())
    except (LookupError, ValueError, TypeError, ArithmeticError, np.linalg.LinAlgError):
        return None
    if not np.all(np.isfinite(point)):
        return None
    return point


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Nothing gets out: SCS prints residuals at any setting, and CVXPY warns of inaccuracy."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


def _solved_by(name: str, problem: Any) -> None:
    """Solve a problem by a solver that CVXPY finds; ProgramError where it takes no such problem."""
    try:
        problem.get_problem_data(name)
    except cp.SolverError:
        raise ProgramError(
            f"{name.lower()} takes no problem of these cones: choose another solver"
        ) from None
    with _printing_to_stderr():
        problem.solve(solver=name, warm_start=False)


@contextlib.contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """Output of compiled code goes to stderr: HiGHS prints a banner at any setting."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        _flush_compiled_code()
        os.dup2(stdout, 1)
        os.close(stdout)


def _flush_compiled_code() -> None:
    """Write out what compiled code holds back, where the C library of this process is found."""
    with contextlib.suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
