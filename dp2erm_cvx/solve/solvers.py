"""Solver settings, and which of them certify every dataset of the universe."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from dp2erm_cvx.errors import DeclarationError, SolverError
from dp2erm_cvx.public import public_number


class Status(enum.StrEnum):
    """What a solver claims. Only a certificate turns a claim into a solution."""

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
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "max_iterations":
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise DeclarationError(
                        f"{setting.name} = {value!r}: must be a whole number of at least 0"
                    )
            elif setting.name in ("tol", "eps"):
                public_number(setting.name, value, above=0)


@dataclass(frozen=True)
class ConicSolver(Solver):
    """A solver reached through the CVXPY declaration."""

    cvxpy_name: ClassVar[str]
    quadratic_only: ClassVar[bool] = False

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``cvxpy.Problem.solve``."""
        return {}


@dataclass(frozen=True)
class Clarabel(ConicSolver):
    """Interior point, exact to ``tol`` where the cone allows."""

    tol: float = 1e-10
    max_iterations: int = 200
    name = "clarabel"
    cvxpy_name = "CLARABEL"

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``cvxpy.Problem.solve``."""
        return {
            "tol_gap_abs": self.tol,
            "tol_gap_rel": self.tol,
            "tol_feas": self.tol,
            "max_iter": self.max_iterations,
        }


@dataclass(frozen=True)
class SCS(ConicSolver):
    """First-order splitting; always started cold."""

    eps: float = 1e-9
    max_iterations: int = 100_000
    name = "scs"
    cvxpy_name = "SCS"

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``cvxpy.Problem.solve``."""
        return {"eps_abs": self.eps, "eps_rel": self.eps, "max_iters": self.max_iterations}


@dataclass(frozen=True)
class OSQP(ConicSolver):
    """First-order splitting for quadratic programs."""

    eps: float = 1e-9
    max_iterations: int = 100_000
    name = "osqp"
    cvxpy_name = "OSQP"
    quadratic_only = True

    def options(self) -> dict[str, Any]:
        """Keyword arguments of ``cvxpy.Problem.solve``."""
        return {"eps_abs": self.eps, "eps_rel": self.eps, "max_iter": self.max_iterations}


@dataclass(frozen=True)
class Newton(Solver):
    """Semismooth Newton on the program's own smooth-plus-prox form; no CVXPY involved."""

    max_iterations: int = 100
    name = "newton"


@dataclass(frozen=True)
class ProjectedGradient(Solver):
    """Accelerated projected (prox-) gradient descent with restarts; the paper solves its rules so."""

    max_iterations: int = 20_000
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
    """Settings from a name or as they are. Raises SolverError naming the known solvers."""
    if isinstance(solver, Solver):
        return solver
    if not isinstance(solver, str) or solver not in SOLVERS:
        raise SolverError(f"unknown solver {solver!r}: choose one of {', '.join(SOLVERS)}")
    return SOLVERS[solver]()


#: Tried in this order, with the same noise, after a solver that is named.
CERTIFYING = (Newton(), ProjectedGradient())


def private_solver(solver: str | Solver) -> Solver:
    """Settings for a private fit: a name stands for that solver followed by ``CERTIFYING``.

    A settings object is taken as it is. Raises SolverError naming the known solvers.
    """
    settings = solver_by_name(solver)
    if isinstance(solver, Solver) or isinstance(settings, FirstCertified):
        return settings
    return FirstCertified((settings, *(other for other in CERTIFYING if other != settings)))


def by_design(settings: Solver) -> bool:
    """Whether the settings go at least as far as ``CERTIFYING``: a public property of the declaration."""
    if not isinstance(settings, FirstCertified):
        return False
    return all(
        any(
            isinstance(one, type(asked)) and one.max_iterations >= asked.max_iterations
            for one in settings.solvers
        )
        for asked in CERTIFYING
    )
