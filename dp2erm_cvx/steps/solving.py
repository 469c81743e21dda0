"""Solves whose certificates count: of weights, of theta, and of what a release may not be stopped by."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from dp2erm_cvx.errors import CalibrationError, CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.model.sums import weights_on_grid
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage
from dp2erm_cvx.solve import (
    GAP_TOLERANCE,
    SCS,
    Clarabel,
    FirstCertified,
    Solution,
    Solver,
    private_solver,
    solve,
    uncertified_start,
)
from dp2erm_cvx.steps.precision import Precision, Sample
from dp2erm_cvx.steps.step import Execution
from dp2erm_cvx.universe import Universe

#: Records of a public example; only a refusal needs as many as are declared.
_EXAMPLE = 500


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


def refuse_unsolvable(
    program: FirstStage, universe: Universe, solver: str | Solver = "first_certified"
) -> None:
    """Raise CalibrationError where a release would not have the weights that are declared, but 1 or any.

    By public facts alone: the cones of what is declared, the solver, and solves on public examples of the
    universe, ordinary and degenerate. A program that is certified on one of them may still have no weights
    on others: that is no reason to refuse, because it would tell of the records.
    """
    if isinstance(program, PrivateFirstStage) or program.certified_error(universe) is not None:
        return  # which has weights on every dataset
    asked = program, universe, _quickest(private_solver(solver))
    try:
        _refuse_unsolvable(*asked)
    except TypeError:  # a user's program need not be hashable
        _refuse_unsolvable.__wrapped__(*asked)


@lru_cache(maxsize=64)
def _refuse_unsolvable(program: FirstStage, universe: Universe, solver: Solver) -> None:
    n = universe.n_samples
    reasons: list[str] = []
    for size in sorted({min(n, _EXAMPLE), n}):
        for records in replace(universe, n_samples=size).examples():
            try:
                found = solve(program.instance(records), solver=solver, tolerance=GAP_TOLERANCE, throw=False)
            except CertificateError as error:  # of the declared problem, whatever the records are
                raise CalibrationError(f"{program.name}: {error}") from None
            except (SolverError, InfeasibleError) as error:
                reasons.append(str(error))
                continue
            if found.certified:
                return
            reasons.append(f"{found.stats.solver} ended with status {found.status.value}")
    raise CalibrationError(
        f"{program.name}: no certified weights on public examples of {n} records ({reasons[-1]}), so that a "
        "release would have arbitrary ones: relax its constraints, or choose another program or solver"
    )


def _quickest(solver: Solver) -> Solver:
    """Without what cannot be certified where Clarabel fails, which finds the lower bound of a gap."""
    listed = solver.solvers if isinstance(solver, FirstCertified) else ()
    if not any(isinstance(one, Clarabel) for one in listed):
        return solver
    return FirstCertified(tuple(one for one in listed if not isinstance(one, SCS)))


def covers(precision: Precision, solution: Solution, drawn: Sample, instance: Instance) -> bool:
    """Whether the computed minimizer is within the tolerance of that for the ideal noise."""
    distance = solution.certificate.radius + drawn.distance / instance.strong_convexity
    return solution.certified and distance <= precision.tolerance


def rests_on_gap(solution: Solution) -> bool:
    """Whether a duality gap alone certifies the solution, which is no proof about the exact minimizer."""
    return solution.certificate.basis == "duality gap"


def _attainable(instance: Instance, tolerance: float) -> float:
    # a duality gap alone reaches no less than a tolerance of its own
    return max(tolerance, GAP_TOLERANCE) if instance.half_digits else tolerance


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
