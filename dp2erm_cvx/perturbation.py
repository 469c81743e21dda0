"""Both stages and their noise: from records to the theta that may be released."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.calibration import Calibration, OutputCalibration
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CertificateError, InfeasibleError, SolverError
from dp2erm_cvx.mechanism import draw, draw_within, perturb_on_grid
from dp2erm_cvx.model.weights import weights_on_grid
from dp2erm_cvx.plan import Plan, Precision
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, SecondStage
from dp2erm_cvx.solve import GAP_TOLERANCE, Solution, Solver, solve, uncertified_start


@dataclass(frozen=True, repr=False)
class Perturbed:
    """What a fit found. Everything but ``theta`` is private.

    ``certified`` says that every exact minimizer that the theorems speak of is within its public tolerance,
    or that none is needed; ``by_gap`` that one of those needed rests on its duality gap alone.
    """

    theta: Array
    weights: Solution
    solution: Solution
    noise: Array
    propensity_noise: Array | None
    certified: bool
    by_gap: bool


def solve_weights(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    """Certified weights (n,) on the grid where their sum is exactly n; the certificate counts the step to it.

    Not for a release, whose refusal would tell of the records. Raises InfeasibleError where hard constraints
    have no solution, SolverError where no point was found, CertificateError where it is not certified.
    """
    found = _on_grid(solve(instance, solver=solver, tolerance=tolerance))
    if not found.certified:  # the step to the grid may be all that a tiny tolerance does not cover
        raise CertificateError(f"{instance.program.name}: {found.advice()}")
    return found


def solve_theta(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    """Certified theta (p,). Not for a release; raises SolverError and CertificateError as above."""
    return solve(instance, solver=solver, tolerance=_tolerance_of_theta(instance, tolerance))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # the certificate judges what comes of it
def perturb(
    plan: Plan,
    first: FirstStage,
    second: SecondStage,
    records: Records,
    *,
    solver: str | Solver,
    tolerance: float,
    seed: int | None = None,
) -> Perturbed:
    """Run a plan on records. No noise is ever drawn anew: whatever solver has to solve it, a vector stays.

    ``tolerance`` is relative; a plan that counts its arithmetic states absolute ones for what is noised.
    """
    if plan.propensity is None:
        weights, propensity_noise, sound = _direct_weights(first, records, solver, tolerance)
    else:
        weights, propensity_noise, sound = _private_weights(plan, first, records, solver, tolerance, seed)
    # no weights of sum n move more than 2n, whether or not they are the minimizer
    judged = [] if plan.covers_all_weights else [weights]
    sound = sound and all(solution.certified for solution in judged)
    step = _mean if isinstance(plan.calibration, OutputCalibration) else _perturbed_minimizer
    theta, solution, noise, certified = step(plan, second, records, weights.value, solver, tolerance, seed)
    theta = second.feasible(records.domain).project(theta)  # post-processing
    by_gap = any(found.certificate.basis == "duality gap" for found in [*judged, solution])
    return Perturbed(theta, weights, solution, noise, propensity_noise, sound and certified, by_gap)


def _direct_weights(
    first: FirstStage, records: Records, solver: str | Solver, tolerance: float
) -> tuple[Solution, None, bool]:
    return _weights(first.instance(records), solver, tolerance), None, True


def _private_weights(
    plan: Plan,
    first: FirstStage,
    records: Records,
    solver: str | Solver,
    tolerance: float,
    seed: int | None,
) -> tuple[Solution, Array, bool]:
    """Weights of Theorem 9, from a coefficient that is itself released (to the second stage only)."""
    assert isinstance(first, PrivateFirstStage)
    assert plan.propensity is not None
    precision = plan.propensity_precision
    sampled = _sample(plan.propensity, precision, _label("propensity", seed))
    instance = first.perturbed(records, plan.propensity.gamma, sampled.noise)
    if precision is None:
        return _weights(instance, solver, tolerance), sampled.noise, True
    solution, certified = _covered_solve(instance, sampled, precision, solver)
    label = _label("propensity grid", seed)
    coefficient = perturb_on_grid(_finite(solution.point), precision.grid, seed=label)
    return _weights_at(solution, instance, coefficient, tolerance), sampled.noise, certified


def _mean(
    plan: Plan,
    second: SecondStage,
    records: Records,
    weights: Array,
    solver: str | Solver,
    tolerance: float,
    seed: int | None,
) -> tuple[Array, Solution, Array, bool]:
    """Theorem 8: noise is added to the solution."""
    assert isinstance(plan.calibration, OutputCalibration)
    instance = second.unconstrained().instance(records, weights, gamma=0.0)
    if plan.precision is None:
        solution = _theta(plan, instance, solver, tolerance)
        theta = solution.value + draw(plan.calibration.law, seed=seed)
    else:
        solution = _solved(instance, solver, within=plan.precision.radius)
        theta = perturb_on_grid(_finite(solution.value), plan.precision.grid, seed=seed)
    return theta, solution, theta - solution.value, solution.certified


def _perturbed_minimizer(
    plan: Plan,
    second: SecondStage,
    records: Records,
    weights: Array,
    solver: str | Solver,
    tolerance: float,
    seed: int | None,
) -> tuple[Array, Solution, Array, bool]:
    """Theorems 1, 2 and 7: noise is a linear term of the objective."""
    assert isinstance(plan.calibration, Calibration)
    program = second.unconstrained() if plan.unconstrained else second
    sampled = _sample(plan.calibration, plan.precision, seed)
    instance = program.instance(records, weights, gamma=plan.calibration.gamma, noise=sampled.noise)
    if plan.precision is None:
        solution = _theta(plan, instance, solver, tolerance)
        return solution.value, solution, sampled.noise, solution.certified
    solution, certified = _covered_solve(instance, sampled, plan.precision, solver)
    theta = perturb_on_grid(_finite(solution.value), plan.precision.grid, seed=_label("grid", seed))
    return theta, solution, sampled.noise, certified


@dataclass(frozen=True)
class _Sampled:
    noise: Array
    distance: float


def _sample(calibration: Calibration, precision: Precision | None, seed: int | str | None) -> _Sampled:
    if precision is None:
        return _Sampled(draw(calibration, seed=seed), 0.0)
    found = draw_within(calibration, precision.sampling_error, seed=seed)
    return _Sampled(found.value, found.distance)


def _covered_solve(
    instance: Instance, sampled: _Sampled, precision: Precision, solver: str | Solver
) -> tuple[Solution, bool]:
    """The minimizer for the computed noise; certified if within the tolerance of that for the ideal one."""
    solution = _solved(instance, solver, within=precision.radius)
    distance = solution.certificate.radius + sampled.distance / instance.strong_convexity
    return solution, solution.certified and distance <= precision.tolerance


def _weights_at(solution: Solution, instance: Instance, coefficient: Array, tolerance: float) -> Solution:
    """Weights at a released coefficient: of the minimizer only the error of the arithmetic is left."""
    assert instance.model is not None
    point = instance.model.penalty.set.project(coefficient)
    exact = replace(
        solution.certificate, output_radius=instance.model.output_radius(point, 0.0), basis="closed form"
    )
    found = replace(
        solution,
        value=instance.model.output(point),
        point=point,
        certificate=exact,
        tolerance=tolerance,
        within=None,
    )
    return _on_grid(found)


def _on_grid(solution: Solution) -> Solution:
    value, moved = weights_on_grid(solution.value)
    radius = (solution.certificate.output_radius + moved) * (1 + 1e-12)
    certificate = replace(solution.certificate, output_radius=radius, relative_radius=radius / len(value))
    return replace(solution, value=value, certificate=certificate)


def _weights(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    return _on_grid(_solved(instance, solver, tolerance=tolerance))


def _theta(plan: Plan, instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    # a relative tolerance only where no public radius is known: an unlucky dataset may miss it
    if plan.radius is None:
        return _solved(instance, solver, tolerance=_tolerance_of_theta(instance, tolerance))
    return _solved(instance, solver, within=plan.radius)


def _tolerance_of_theta(instance: Instance, tolerance: float) -> float:
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


def _finite(values: Array) -> Array:
    # a solver that failed may leave anything; its release is conditional, and still has to be made
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _label(name: str, seed: int | None) -> str | None:
    # a seed must not give two draws the same bits
    return None if seed is None else f"{name} {seed}"
