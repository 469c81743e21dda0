"""Solve an instance with any solver, polish the point, certify it; and the library's methods.

These are semismooth Newton on the forward-backward envelope, and accelerated prox-gradient descent.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.errors import (
    CertificateError,
    Dp2ermError,
    InfeasibleError,
    ProgramError,
    SolverError,
)
from dp2erm_cvx.model.composite import FLOOR, FLOOR_RELATIVE, NEWTON_STEP, Composite
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.certificate import Certificate, certify
from dp2erm_cvx.solve.solvers import (
    ConicSolver,
    FirstCertified,
    Newton,
    ProjectedGradient,
    Solver,
    Status,
    solved_by_cvxpy,
    solver_by_name,
)

#: Relative radius that a solution must be certified to.
TOLERANCE = 1e-9
#: The same where a duality gap judges, or a point at a kink, which loses half of the digits.
GAP_TOLERANCE = 1e-3

_POLISH_ITERATIONS = 100


@dataclass(frozen=True)
class Solution:
    """A point with its certificate; values are private and do not appear in the repr.

    Parameters
    ----------
    value
        The weights (n,) or theta (p,).
    point
        The variable of the model (d,), which is the value as well where no weights were asked for.
    status
        What the solver claimed. ``certified`` counts.
    certificate
        What is proved about the point.
    tolerance
        Relative radius that was asked for.
    solver
        Name of the solver that found it.
    iterations
        Number of its iterations.
    seconds
        How long it took, with the polish and the certificates.
    raw
        The certificate of the solver's own point, before polishing.
    within
        Absolute bound on the radius that was asked for in place of the tolerance.
    failures
        What became of the solvers that were tried without a point, in words.
    """

    value: Array = field(repr=False)
    point: Array = field(repr=False)
    status: Status
    certificate: Certificate = field(repr=False)
    tolerance: float
    solver: str = field(repr=False)
    iterations: int = field(default=0, repr=False)
    seconds: float = field(default=0.0, repr=False)
    raw: Certificate | None = field(default=None, repr=False)
    within: float | None = None
    failures: tuple[str, ...] = field(default=(), repr=False)

    @property
    def error(self) -> float:
        """The proved bound that is compared with ``within``, or with the relative tolerance."""
        return self.certificate.proved if self.within is None else self.certificate.radius

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
                "no solver found a solution on these records, and the point where solvers begin "
                "stands in its place, such as weights 1: relax the constraints before the next "
                "release, and do not publish this warning, which tells of the records"
            )
        backward = self.certificate.backward_error
        if backward is not None:
            return (
                f"{self.solver} ended with status {self.status.value} and the weights solve a "
                f"problem whose targets and sums are off by {backward:.1e}, more than "
                f"{self.tolerance:g}: loosen the tolerance; hard constraints may be too close to "
                "infeasible"
            )
        goal = f"{self.tolerance:g} relative" if self.within is None else f"within {self.within:g}"
        return (
            f"{self.solver} ended with status {self.status.value} and the point is not certified "
            f"to {goal}: raise the ridge, loosen the tolerance, or try another solver"
        )


def solve(
    instance: Instance,
    *,
    solver: str | Solver = "first_certified",
    tolerance: float | None = None,
    within: float | None = None,
    polish: bool = True,
    throw: bool = True,
    seconds: float | None = None,
) -> Solution:
    """Solve, polish by Newton steps, and certify.

    Parameters
    ----------
    instance
        A program on its data.
    solver
        A name or a settings object. No other solver is tried unless it is a
        :class:`FirstCertified`, as by default: of a list the first certified solution counts, or
        else the one with the least proved error.
    tolerance
        Relative radius that is asked for; by default TOLERANCE, or GAP_TOLERANCE where half of the
        digits are lost.
    within
        Above 0: an absolute bound on the radius of the model's variable, in place of the tolerance.
    polish
        Whether Newton steps follow; without them the solver's own point is judged.
    throw
        Whether a solver that finds no certified point raises. Without it nothing that a solver does
        raises: without any point the uncertified start of solvers comes back.
    seconds
        Limits every solver that is reached through CVXPY, in a process of its own that is ended
        after them; by default there is no clock. A private fit has none: what it releases may
        depend on public numbers of iterations, never on the speed of a machine.

    Returns
    -------
    Solution

    Raises
    ------
    DeclarationError
        For an invalid ``within`` or ``seconds``.
    ProgramError
        Where the solver does not apply.
    InfeasibleError
        Where hard constraints have no solution.
    SolverError
        Where no point was found, if ``throw``.
    CertificateError
        Where the point is not certified as asked, if ``throw``.
    """
    if seconds is not None:
        seconds = public_number("seconds", seconds, above=0)
    request = _Request.of(instance, tolerance, within, polish=polish, seconds=seconds)
    return _solution(instance, solver, request, throw=throw)


def minimizer(
    instance: Instance,
    solver: str | Solver,
    tolerance: float | None,
    within: float | None,
    *,
    outputs: bool,
) -> Solution:
    """Solve as :func:`solve` does, and let nothing that a solver does raise.

    Parameters
    ----------
    instance, solver, tolerance, within
        As of :func:`solve`.
    outputs
        Whether weights are computed; without them the variable of the model alone is wanted.

    Raises
    ------
    DeclarationError
        For an invalid ``within``.
    """
    request = _Request.of(instance, tolerance, within, outputs=outputs)
    return _solution(instance, solver, request, throw=False)


def _solution(
    instance: Instance, solver: str | Solver, request: _Request, *, throw: bool
) -> Solution:
    """The best solution of the solvers that are named. Raises as :func:`solve` does."""
    settings = solver_by_name(solver)
    best, failures = _best_solution(instance, settings, request, refused=throw)
    if best is None and throw:
        what = "; ".join(failures)
        if isinstance(settings, FirstCertified):
            what = f"none of the listed solvers returned a point: {what}"
        raise SolverError(what)
    if best is None:
        best = uncertified_start(instance)
    elif throw and not best.certified:
        tried = ""
        if instance.composite.constrained and isinstance(settings, FirstCertified):
            tried = f" (tried: {', '.join(one.name for one in settings.solvers)})"
        raise CertificateError(f"{instance.program.name}: {best.advice()}{tried}")
    return replace(best, failures=failures)


@dataclass(frozen=True)
class _Request:
    """What is asked of every solver that is tried.

    Parameters
    ----------
    tolerance, within, polish, seconds
        As of :func:`solve`.
    outputs
        Whether weights are computed.
    """

    tolerance: float
    within: float | None
    polish: bool = True
    seconds: float | None = None
    outputs: bool = True

    @classmethod
    def of(
        cls, instance: Instance, tolerance: float | None, within: float | None, **how: Any
    ) -> _Request:
        """With the default tolerance of an instance; DeclarationError for an invalid ``within``."""
        if tolerance is None:
            tolerance = GAP_TOLERANCE if instance.half_digits else TOLERANCE
        if within is not None:
            within = public_number("within", within, above=0)
        return cls(tolerance, within, **how)


def _best_solution(
    instance: Instance, settings: Solver, request: _Request, *, refused: bool
) -> tuple[Solution | None, tuple[str, ...]]:
    """The first certified solution, or the best one of all solvers; and what became of others.

    Raises ProgramError where no solver applies, which says so of the program, and InfeasibleError
    where hard constraints have no solution, of a single solver where that is to be ``refused``.
    """
    listed = isinstance(settings, FirstCertified)
    candidates = settings.solvers if isinstance(settings, FirstCertified) else (settings,)
    best: Solution | None = None
    failures = list[Dp2ermError]()
    for candidate in candidates:
        if listed and instance.model is None and not isinstance(candidate, ConicSolver):
            continue  # such a program has no form that the others could work on, whatever the data
        try:
            solution = _solve_one(instance, candidate, request)
        except InfeasibleError:
            raise
        except (SolverError, ProgramError) as error:
            failures.append(error)
            continue
        # a bound that is no number is the worst of all, whichever solver comes first
        if best is None or solution.error < best.error or math.isnan(best.error):
            best = solution
        if solution.certified:
            break
        if listed or refused:
            # no other solver finds weights where there are none
            instance.composite.refuse_infeasible()
    if failures and all(isinstance(error, ProgramError) for error in failures) and best is None:
        raise failures[0]
    return best, tuple(map(str, failures))


def uncertified_start(instance: Instance) -> Solution:
    """Where a solver would begin, with nothing proved about it, for those who must go on."""
    model = instance.composite
    start = model.start()
    unproved = Certificate(math.inf, math.inf, math.inf, "none", instance.strong_convexity)
    return Solution(model.output(start), start, Status.FAILED, unproved, TOLERANCE, "none")


def _solve_one(instance: Instance, settings: Solver, request: _Request) -> Solution:
    """The point of one solver, polished and certified.

    A polished point takes the place of the solver's own where its certificate is no worse.

    Raises
    ------
    SolverError
        Where the solver returns no point, or cannot be run.
    ProgramError
        Where the solver does not apply to the program.
    InfeasibleError
        Where hard constraints have no solution.
    """
    began = time.perf_counter()
    model = instance.model
    tolerance = request.tolerance
    point, status, iterations = _point(instance, settings, request.seconds)
    raw = _certificate(instance, point, tolerance)
    certificate = raw
    # A Newton solve polishes itself, and a program without a smooth-plus-prox form has nothing to
    # polish with.
    polishes = request.polish and not isinstance(settings, Newton)
    if polishes and model is not None and _has_step(model):
        polished, _ = minimize_by_newton(model, point, _POLISH_ITERATIONS)
        after = _certificate(instance, polished, tolerance)
        nearer = after.radius <= certificate.radius
        if after.backward_error is not None:
            nearer = after.proved <= certificate.proved
        if nearer:
            point = polished
            certificate = after
    value = point
    if model is not None and request.outputs:
        value = model.output(point)
    return Solution(
        value=value,
        point=point,
        status=status,
        certificate=certificate,
        tolerance=tolerance,
        solver=settings.name,
        iterations=iterations,
        seconds=time.perf_counter() - began,
        raw=raw,
        within=request.within,
    )


def _certificate(instance: Instance, point: Array, tolerance: float) -> Certificate:
    """The certificate of a point; one of nothing where its numbers are too wild to compute with."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            return certify(instance, point, tolerance)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return Certificate(math.inf, math.inf, math.inf, "not computed", instance.strong_convexity)


def _point(
    instance: Instance, settings: Solver, seconds: float | None
) -> tuple[Array, Status, int]:
    """A point of the model's variable, what the solver claims, and its iterations."""
    model = instance.model
    if isinstance(settings, ConicSolver):
        return solved_by_cvxpy(instance, settings, seconds)
    if not isinstance(settings, Newton | ProjectedGradient):
        raise SolverError(f"no method for solver {settings.name!r}")
    if model is None:
        raise ProgramError(
            f"{settings.name} needs a prox-friendly program; choose one such as clarabel"
        )
    if not _has_step(model):
        reason = f"the curvature of {instance.program.name} has no bound: declare a finite radius"
        raise SolverError(f"{settings.name}: {reason}")
    method = minimize_by_newton if isinstance(settings, Newton) else minimize_by_gradient
    point, iterations = method(model, model.start(), settings.max_iterations)
    status = Status.LIMIT if iterations >= settings.max_iterations else Status.SOLVED
    return point, status, iterations


def _has_step(model: Composite) -> bool:
    """True if a step is known: the curvature is bounded over all feasible points."""
    return model.solves_itself or math.isfinite(model.smoothness)


# What the envelope has to fall by, over step * residual^2. A prox-gradient step lowers it by
# (1 - NEWTON_STEP) / 2 of that, 0.025, so that the search asks for less than its last resort gives.
_DECREASE = 1e-4
# So many points are tried between Newton's step and the prox-gradient step. The last has 1 / 2048
# of Newton's direction: it is nearly the prox-gradient step, which comes next and needs no test.
_TRIES = 12
# A residual within reach of its rounding may still be halved, but by chance. So many steps may fail
# to halve it before it is left alone.
_STEPS_AT_FLOOR = 3
# A residual of this part of its rounding is left alone.
_NOISE_SHARE = 0.1


def minimize_by_newton(
    model: Composite, start: Array, max_iterations: int = 100
) -> tuple[Array, int]:
    """Minimize f + h from ``start`` (d,) by Newton's method, until rounding stops it.

    Newton's method on the fixed-point residual ``v - prox(v - step grad f(v))``. A step is taken
    where it halves the least residual so far (the last one would not do: it and the envelope may
    undo each other for ever); otherwise the forward-backward envelope decides (Themelis, Stella &
    Patrinos 2018), whose search ends in a plain prox-gradient step.

    Parameters
    ----------
    model
        f with its smoothness, and h with its prox.
    start
        Where to begin (d,).
    max_iterations
        Largest number of steps.

    Returns
    -------
    tuple
        The point (d,) with the least residual, and the number of steps, each with one Hessian.
    """
    own = model.minimized(start, max_iterations)
    if own is not None:
        return own
    step = NEWTON_STEP / model.smoothness
    state = _State(model, model.penalty.prox(start, step), step)
    best = state
    at_floor = 0
    iterations = 0
    while iterations < max_iterations and state.residual > 0.0 and at_floor < _STEPS_AT_FLOOR:
        iterations += 1
        # 1. Newton's direction at the last point.
        direction = _newton_direction(model, state, step)
        # 2. The next point on it, which halves the least residual or lowers the envelope.
        half = 0.5 * best.residual
        state = _next_state(model, state, direction, step, half)
        # 3. Count the steps near the floor of rounding since the residual was last halved.
        if state.residual < half:
            at_floor = 0
        elif _at_floor(model, best):
            at_floor += 1
        # 4. Keep the point with the least residual.
        if state.residual < best.residual:
            best = state
        # 5. Stop where all that is left is noise, which can be halved for long.
        if best.residual <= _NOISE_SHARE * model.rounding(best.v):
            break
    # A prox has the zeros of the minimizer. Inside a set the gradient at v is what a certificate
    # needs.
    if model.penalty.priced or model.penalty.l1:
        return best.forward, iterations
    return best.v, iterations


class _State:
    """A point of Newton's method with all that is computed there once.

    Attributes
    ----------
    v
        The point (d,).
    gradient
        That of f at v (d,).
    trial
        The gradient step ``v - step gradient`` (d,).
    forward
        The prox-gradient step ``prox(trial)`` (d,).
    residual
        ``||forward - v|| / step``, in units of the gradient.
    envelope
        The forward-backward envelope, in units of the objective.
    """

    def __init__(self, model: Composite, v: Array, step: float) -> None:
        self.v = v
        model.prepare(v)
        self.gradient = model.gradient(v)
        self.trial = v - step * self.gradient
        self.forward = model.penalty.prox(self.trial, step)
        move = self.forward - v
        self.residual = float(np.linalg.norm(move)) / step
        smooth = model.value(v) + float(self.gradient @ move) + float(move @ move) / (2 * step)
        self.envelope = smooth + model.penalty.value(self.forward)


def _newton_direction(model: Composite, state: _State, step: float) -> Array:
    """The direction d of Newton's method on the residual ``v - prox(trial)``.

    It solves ``(I - P (I - step H)) d = prox(trial) - v`` with H the Hessian of f at v and P an
    element of the generalized Jacobian of the prox at ``trial``. Where the system has no solution
    in floating point it is the prox-gradient step.
    """
    move = state.forward - state.v
    known = model.newton_direction(state.trial, move, step)
    if known is not None:
        return known
    P = model.penalty.jacobian(state.trial, step)
    identity = np.eye(model.dimension)
    jacobian = identity - P @ (identity - step * model.hessian(state.v))
    if model.ridge > 0:
        try:
            return np.asarray(np.linalg.solve(jacobian, move), dtype=np.float64)
        except np.linalg.LinAlgError:
            pass  # The matrix is singular to working precision.
    # Without a ridge the Hessian may be singular: the least d of least squares.
    try:
        direction: Array = scipy.linalg.lstsq(jacobian, move, lapack_driver="gelsy", cond=1e-15)[0]
    except (np.linalg.LinAlgError, ValueError):
        return move  # The matrix holds numbers that are not finite.
    return direction


def _next_state(
    model: Composite, state: _State, direction: Array, step: float, enough: float
) -> _State:
    """The next point: ``v + share d + (1 - share) move``, share = 1, 1/2, 1/4 and so on.

    It is the first whose residual is ``enough`` or whose envelope falls by ``_DECREASE``, or else
    the prox-gradient step, whose ``move = forward - v`` takes over as the share of d falls.
    """
    move = state.forward - state.v
    share = 1.0
    for _ in range(_TRIES):
        # Projecting brings a step no farther from the minimizer. A step that leaves the set far
        # behind, as along a flat direction toward a bound, then lands on the bound.
        reached = model.penalty.set.project(state.v + share * direction + (1 - share) * move)
        candidate = _State(model, reached, step)
        if candidate.residual <= enough:
            return candidate
        if candidate.envelope <= state.envelope - _DECREASE * step * state.residual**2:
            return candidate
        share *= 0.5
    return _State(model, state.forward, step)


def _at_floor(model: Composite, state: _State) -> bool:
    """True if the residual is within reach of the rounding error of the gradient."""
    size = model.smoothness * float(np.linalg.norm(state.v))
    return state.residual <= FLOOR * model.rounding(state.v) + FLOOR_RELATIVE * size


#: A move below this share of the point is rounding.
_STILL = 4e-16


def minimize_by_gradient(model: Composite, start: Array, max_iterations: int) -> tuple[Array, int]:
    """Minimize f + h from ``start`` (d,) by accelerated gradient descent.

    FISTA with restarts takes all iterations, or half where the model has a ridge m. Unless it stood
    still, the rest go to constant momentum from the better of its point and the start, whose
    iterations are bounded (page on solving; Beck, First-Order Methods in Optimization, Theorem
    10.42).

    Parameters
    ----------
    model
        f with its smoothness, and h with its prox.
    start
        Where to begin (d,).
    max_iterations
        Largest number of gradients.

    Returns
    -------
    tuple
        The point (d,), and the number of gradients.
    """
    own = model.by_gradient(start)
    if own is not None:
        return own
    first = model.penalty.set.project(start)
    share = max_iterations // 2 if model.ridge > 0 else max_iterations
    point, iterations = accelerated(model, first, share)
    if iterations < share or model.ridge <= 0:
        return point, iterations
    first = _gradient_step(model, first)
    begin = point if _objective(model, point) <= _objective(model, first) else first
    # constant momentum (sqrt(k) - 1) / (sqrt(k) + 1), k the condition number
    root = math.sqrt(max(model.smoothness / model.ridge, 1.0))
    momentum = (root - 1) / (root + 1)
    remaining_iterations = max_iterations - iterations - 1
    point, more = accelerated(model, begin, remaining_iterations, momentum)
    return point, iterations + 1 + more


def accelerated(
    model: Composite, v: Array, max_iterations: int, momentum: float | None = None
) -> tuple[Array, int]:
    """FISTA from ``v``, restarted whenever the momentum points uphill (O'Donoghue & Candes 2015).

    Parameters
    ----------
    model
        f with its smoothness, and h with its prox.
    v
        Where to begin (d,).
    max_iterations
        Largest number of gradients.
    momentum
        A constant one, which is never restarted (Beck, section 10.7.7); None for that of FISTA.

    Returns
    -------
    tuple
        The point (d,), and the number of gradients.
    """
    extrapolated = v
    age = 1.0
    for iterations in range(1, max_iterations + 1):
        new = _gradient_step(model, extrapolated)
        if momentum is None and float((extrapolated - new) @ (new - v)) > 0:
            age = 1.0
            extrapolated = v
            continue
        next_age = (1 + np.sqrt(1 + 4 * age**2)) / 2
        share = (age - 1) / next_age if momentum is None else momentum
        move = float(np.linalg.norm(new - extrapolated))
        extrapolated = new + share * (new - v)
        v = new
        age = next_age
        if move <= _STILL * float(np.linalg.norm(v)):
            return v, iterations
    return v, max_iterations


def _gradient_step(model: Composite, v: Array) -> Array:
    """The prox-gradient step of length 1/L from v (d,)."""
    step = 1 / model.smoothness
    return model.penalty.prox(v - step * model.gradient(v), step)


def _objective(model: Composite, v: Array) -> float:
    """Value of f + h at v (d,)."""
    return model.value(v) + model.penalty.value(v)
