"""Solve an instance with any solver, polish the point, certify it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CertificateError, ProgramError, SolverError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.direct import DirectModel
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.certificate import Certificate, certify
from dp2erm_cvx.solve.conic import Dual, solved_by_cvxpy
from dp2erm_cvx.solve.newton import minimize_by_gradient, minimize_by_newton
from dp2erm_cvx.solve.solvers import (
    ConicSolver,
    FirstCertified,
    Newton,
    ProjectedGradient,
    Solver,
    Status,
    solver_by_name,
)

#: Relative radius that a solution must be certified to.
TOLERANCE = 1e-9
#: The same where a duality gap judges, or a point at a kink, which loses half of the digits.
GAP_TOLERANCE = 1e-3

_POLISH_ITERATIONS = 100


@dataclass(frozen=True)
class Stats:
    """Who solved it and at what cost; ``raw`` judges the solver's own point before polishing."""

    solver: str
    iterations: int
    seconds: float = field(repr=False)
    polish_iterations: int = 0
    raw: Certificate | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Solution:
    """A point with its certificate; values are private and do not appear in the repr.

    ``value`` is the weights (n,) or theta (p,), ``point`` the variable of the composite model. ``certified``
    is what counts; ``status`` is only what the solver claimed. ``within`` is the absolute bound on the radius
    that was asked for in place of the relative ``tolerance``.
    """

    value: Array = field(repr=False)
    point: Array = field(repr=False)
    status: Status
    certificate: Certificate = field(repr=False)
    tolerance: float
    stats: Stats = field(repr=False)
    within: float | None = None

    @property
    def certified(self) -> bool:
        """True if the radius is within ``within``, or else the relative tolerance."""
        if self.within is not None:
            return self.certificate.radius <= self.within
        return self.certificate.certifies(self.tolerance)

    @property
    def substituted(self) -> bool:
        """True if no solver returned a point, and where a solver begins stands in its place."""
        return self.certificate.basis == "none"

    def advice(self) -> str:
        """Advice on what to try next, in words that hold no private number."""
        if self.certified:
            return "certified"
        if self.substituted:
            return (
                "no solver found a solution on these records, and the point where solvers begin stands in "
                "its place, such as weights 1: relax the constraints before the next release, and do not "
                "publish this warning, which tells of the records"
            )
        goal = f"{self.tolerance:g} relative" if self.within is None else f"within {self.within:g}"
        return (
            f"{self.stats.solver} ended with status {self.status.value} and the point is not certified to "
            f"{goal}: raise the ridge, loosen the tolerance, or try another solver"
        )


def solve(
    instance: Instance,
    *,
    solver: str | Solver = "first_certified",
    tolerance: float | None = None,
    within: float | None = None,
    polish: bool = True,
    throw: bool = True,
) -> Solution:
    """Solve, polish by Newton steps, and certify.

    ``solver`` is a name or a settings object; no other is tried unless it is a :class:`FirstCertified`, as by
    default. ``polish=False`` judges the solver's own point. ``within`` > 0 is an absolute bound on the radius
    of the model's variable, in place of the relative ``tolerance`` (default TOLERANCE, or GAP_TOLERANCE where
    half of the digits are lost).

    Raises DeclarationError for an invalid ``within``, ProgramError where the solver does not apply,
    InfeasibleError where hard constraints have no solution, SolverError where no point was found, and if
    ``throw`` CertificateError where the point is not certified as asked.
    """
    settings = solver_by_name(solver)
    if tolerance is None:
        tolerance = GAP_TOLERANCE if instance.half_digits else TOLERANCE
    if within is not None:
        within = public_number("within", within, above=0)
    listed = settings.solvers if isinstance(settings, FirstCertified) else None
    solution: Solution | None = None
    for candidate in (settings,) if listed is None else listed:
        if listed and instance.model is None and not isinstance(candidate, ConicSolver):
            continue  # such a program has no form that the others could work on, whatever the data
        try:
            solution = _solve_one(instance, candidate, tolerance, within, polish)
        except SolverError:
            if listed is None:
                raise
            continue
        if solution.certified:
            return solution
        if listed or throw:
            _raise_if_infeasible(instance)  # no other solver finds weights where there are none
    if solution is None:
        raise SolverError("none of the listed solvers returned a point")
    if throw:
        # near the edge of what weights can meet the multipliers grow, and such a program has no ridge
        edge = "" if instance.targets is None else "; hard constraints may be too close to infeasible"
        raise CertificateError(f"{instance.program.name}: {solution.advice()}{edge}")
    return solution


def uncertified_start(instance: Instance) -> Solution:
    """Where a solver would begin, with nothing proved about it: for those who must go on regardless."""
    model = instance.composite
    start = model.start()
    unproved = Certificate(math.inf, math.inf, math.inf, "none", instance.strong_convexity)
    return Solution(model.output(start), start, Status.FAILED, unproved, TOLERANCE, Stats("none", 0, 0.0))


def _solve_one(
    instance: Instance, settings: Solver, tolerance: float, within: float | None, polish: bool
) -> Solution:
    began = time.perf_counter()
    point, status, iterations, dual = _find(instance, settings)
    certificate = raw = certify(instance, point, tolerance, dual)
    polish_iterations = 0
    # a Newton solve polishes itself; without a smooth-plus-prox form there is nothing to polish with
    if polish and _steps(instance.model) and not isinstance(settings, Newton):
        assert instance.model is not None
        polished, steps = _newton(instance.model, point, _POLISH_ITERATIONS)
        after = certify(instance, polished, tolerance)
        if after.radius <= certificate.radius:
            point, certificate, polish_iterations = polished, after, steps
    value = point if instance.model is None else instance.model.output(point)
    stats = Stats(settings.name, iterations, time.perf_counter() - began, polish_iterations, raw)
    return Solution(value, point, status, certificate, tolerance, stats, within)


def _find(instance: Instance, settings: Solver) -> tuple[Array, Status, int, Dual | None]:
    """A point of the model's variable, what the solver claims, its iterations, and its dual point."""
    if isinstance(settings, ConicSolver):
        return solved_by_cvxpy(instance, settings)
    if instance.model is None:
        raise ProgramError(
            f"{settings.name} needs a prox-friendly program; choose a conic solver such as clarabel"
        )
    model, start = instance.model, instance.model.start()
    if not _steps(model):
        raise SolverError(
            f"{settings.name}: the curvature of {instance.program.name} has no bound: declare a finite radius"
        )
    if isinstance(settings, Newton):
        point, iterations = _newton(model, start, settings.max_iterations)
    elif not isinstance(settings, ProjectedGradient):
        raise SolverError(f"no method for solver {settings.name!r}")
    elif isinstance(model, DirectModel):
        point, iterations = model.by_gradient(start)
    else:
        point, iterations = minimize_by_gradient(model, start, settings.max_iterations)
    status = Status.LIMIT if iterations >= settings.max_iterations else Status.SOLVED
    return point, status, iterations, None


def _steps(model: Composite | None) -> bool:
    """True if a step is known: the curvature is bounded over all feasible points."""
    return isinstance(model, DirectModel) or (model is not None and math.isfinite(model.smoothness))


def _newton(model: Composite, start: Array, limit: int) -> tuple[Array, int]:
    if isinstance(model, DirectModel):
        return model.minimized(start, limit)
    return minimize_by_newton(model, start, limit)


def _raise_if_infeasible(instance: Instance) -> None:
    """Raise InfeasibleError where hard moment targets have no solution, or return."""
    if instance.targets is not None:
        instance.targets.refuse_infeasible()
