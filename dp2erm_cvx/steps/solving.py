"""Solves whose certificates count: of weights, of theta, and of what a release may not be stopped by."""

from __future__ import annotations

from dataclasses import replace

from dp2erm_cvx.errors import CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.model.sums import weights_on_grid
from dp2erm_cvx.program import Instance
from dp2erm_cvx.solve import GAP_TOLERANCE, Solution, Solver, solve, uncertified_start
from dp2erm_cvx.steps.precision import Precision, Sample
from dp2erm_cvx.steps.step import Execution


def solve_weights(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    """Certified weights (n,) on the grid where their sum is exactly n; the certificate counts the step to it.

    Not for a release, whose refusal would tell of the records. Raises InfeasibleError where hard constraints
    have no solution, SolverError where no point was found, CertificateError where it is not certified.
    """
    found = to_grid(solve(instance, solver=solver, tolerance=tolerance))
    if not found.certified:  # the step to the grid may be all that a tiny tolerance does not cover
        raise CertificateError(f"{instance.program.name}: {found.advice()}")
    return found


def solve_theta(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    """Certified theta (p,). Not for a release; raises SolverError and CertificateError as above."""
    return solve(instance, solver=solver, tolerance=_attainable(instance, tolerance))


def to_grid(solution: Solution) -> Solution:
    """Weights on the grid where their sum is exactly n; the certificate counts the step to it."""
    value, moved = weights_on_grid(solution.value)
    radius = (solution.certificate.output_radius + moved) * (1 + 1e-12)
    certificate = replace(solution.certificate, output_radius=radius, relative_radius=radius / len(value))
    return replace(solution, value=value, certificate=certificate)


def released_weights(instance: Instance, execution: Execution) -> Solution:
    """Weights of a release, on the grid, certified to the tolerance of the run or not."""
    return to_grid(_solved(instance, execution.solver, tolerance=execution.tolerance))


def released_minimizer(instance: Instance, execution: Execution, within: float | None) -> Solution:
    """The minimizer for a release, certified ``within`` a public radius, or as asked where none is known."""
    if within is None:
        # a relative tolerance only where no public radius is known: an unlucky dataset may miss it
        tolerance = _attainable(instance, execution.tolerance)
        return _solved(instance, execution.solver, tolerance=tolerance)
    return _solved(instance, execution.solver, within=within)


def covers(precision: Precision, solution: Solution, drawn: Sample, instance: Instance) -> bool:
    """Whether the computed minimizer is within the tolerance of that for the ideal noise."""
    distance = solution.certificate.radius + drawn.distance / instance.strong_convexity
    return solution.certified and distance <= precision.tolerance


def rests_on_gap(solution: Solution) -> bool:
    """Whether a duality gap alone certifies the solution, which is no proof about the exact minimizer."""
    return solution.certificate.basis == "duality gap"


def _attainable(instance: Instance, tolerance: float) -> float:
    # a duality gap alone reaches no less than a tolerance of its own
    return tolerance if instance.model is not None else max(tolerance, GAP_TOLERANCE)


def _solved(
    instance: Instance, solver: str | Solver, *, tolerance: float | None = None, within: float | None = None
) -> Solution:
    """Solve for a release, which nothing may stop that depends on the records.

    What is not certified comes back as it is; where no solver returns a point, so does an uncertified start.
    """
    try:
        return solve(instance, solver=solver, tolerance=tolerance, within=within, throw=False)
    except (SolverError, CertificateError, InfeasibleError):
        return uncertified_start(instance)
