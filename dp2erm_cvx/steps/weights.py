"""Weights, and solves whose certificates count.

Weights stay private and enter what is released through V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import CalibrationError, CertificateError, InfeasibleError
from dp2erm_cvx.model.sums import grid_error, weights_on_grid
from dp2erm_cvx.paper import BoundFamily, bound_of_family
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, Instance, Kind, PrivateFirstStage
from dp2erm_cvx.program.weighting.stage import SMALL_ERROR
from dp2erm_cvx.solve import (
    GAP_TOLERANCE,
    SCS,
    Certificate,
    Clarabel,
    FirstCertified,
    Solution,
    Solver,
    Status,
    minimizer,
    private_solver,
    solve,
    uncertified_start,
)
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.execution import Execution, Inputs

#: Records of a public example; only a refusal needs as many as are declared.
_EXAMPLE = 500


@dataclass(frozen=True)
class WeightsPlan:
    """Weights that a step computes at, and how far they move between neighbors.

    Where weights are the variable, a tolerance below the public bound on their error is raised to
    it if V hardly grows by that.

    Parameters
    ----------
    program
        The resolved first stage; None where every weight is 1.
    bound
        V, which counts the tolerance.
    tolerance
        What weights are certified to, relative to n.
    n_samples
        n, the number of records.
    known
        Whether a public bound covers their numerical error on every dataset, or V covers all
        weights.
    """

    program: FirstStage | None
    bound: StabilityBound
    tolerance: float
    n_samples: int
    known: bool = True

    @classmethod
    def of(
        cls,
        program: FirstStage,
        universe: MappedUniverse,
        tolerance: float,
        family: BoundFamily,
        coefficient_norm: float | None = None,
    ) -> WeightsPlan:
        """The weights of a first stage, with the bound of what is computed.

        Parameters
        ----------
        program
            The first stage.
        universe
            The datasets that it is solved on.
        tolerance
            What weights are certified to, relative to n.
        family
            Whose bound V is.
        coefficient_norm
            Public bound on the norm of a private coefficient, which its weights need.

        Raises
        ------
        CalibrationError
            Where no theorem covers the program, or no public example has weights.
        """
        n = universe.n_samples
        program = program.at(universe)
        bound = bound_of_family(program, universe, family)
        if bound.V < 2.0:
            raise CalibrationError(
                f"{bound.theorem} claims V = {bound.V!r}: some weight is at least 1, so V is at "
                "least 2"
            )
        refuse_unsolvable(program, universe)
        tolerance = public_number("tolerance", tolerance, at_least=0.0)
        if isinstance(program, PrivateFirstStage):
            public = program.certified_error(universe, coefficient_norm)
        else:
            public = program.certified_error(universe)
        of_form = program.kind is Kind.WEIGHTING and tolerance > 0.0
        reached = None if public is None else _after_the_grid(program, n, public)
        if of_form and reached is not None and 2.0 * n * reached <= SMALL_ERROR * bound.V:
            # what every dataset reaches is counted in place of less
            tolerance = max(tolerance, reached * ROUND_UP)
        error = tolerance * n
        certain = not error or reached is None or reached <= tolerance
        bound = bound.of_computed_weights(error, n, certain=certain)
        # no error assumes exact weights
        known = public is not None or bound.V >= 2.0 * n or not error
        return cls(program, bound, tolerance, n, known)

    @property
    def covers_all(self) -> bool:
        """True if V is at its cap 2n.

        No two nonnegative vectors of sum n exceed that, whether they are minimizers or not.
        """
        return self.bound.V >= 2 * self.n_samples

    @property
    def assumption(self) -> str:
        """How the numerical error of the weights is covered, in words."""
        if self.program is None:
            plain = self.bound == uniform_weights(self.n_samples)
            return "weights are 1" if plain else "factors are functions of their own record"
        if self.covers_all:
            return "V covers all weights of sum n, so that theirs need no certificate"
        return f"weights are certified to {self.tolerance:g} relative, which V counts"

    def find(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> Solution:
        """Weights (n,) on the grid where their sum is n.

        They are solved for, or read at a released coefficient.
        """
        assert self.program is not None
        instance = self.program.instance(inputs.records)
        if not isinstance(self.program, PrivateFirstStage):
            # to the tolerance that V counts, certified or not
            tolerance = self.tolerance if self.tolerance else execution.tolerance
            return to_grid(released_minimizer(instance, execution, None, tolerance))
        # at a coefficient only the error of the arithmetic is left
        how = "closed form"
        model = instance.composite
        point = model.penalty.set.project(released["propensity"])
        radius = model.output_radius(point, 0.0)
        certificate = Certificate(0.0, radius, math.inf, how, instance.strong_convexity, 0.0)
        output = model.output(point)
        solution = Solution(output, point, Status.SOLVED, certificate, execution.tolerance, how)
        return to_grid(solution)


def _after_the_grid(program: FirstStage, n_samples: int, radius: float) -> float:
    """Distance over n of weights on the grid to the exact ones.

    Before the step to the grid they are within ``radius`` of these. The step to the grid repairs
    their sum. The exact weights have the sum n, so that of the solution of a problem in the weights
    may be off by the radius; other weights are scaled to the sum n first.
    """
    repaired = radius if program.kind is Kind.WEIGHTING else 0.0
    return radius + repaired + grid_error(n_samples)


def solve_weights(instance: Instance, solver: str | Solver, tolerance: float) -> Solution:
    """Certified weights (n,) on the grid.

    They are not for a release, whose refusal would tell of the records.

    Raises
    ------
    InfeasibleError
        Where hard constraints have no solution.
    SolverError
        Where no point was found.
    CertificateError
        Where the point is not certified. The step to the grid may be all that a tiny tolerance does
        not cover.
    """
    weights = to_grid(solve(instance, solver=solver, tolerance=tolerance))
    if not weights.certified:
        raise CertificateError(f"{instance.program.name}: {weights.advice()}")
    return weights


def to_grid(solution: Solution) -> Solution:
    """Weights on the grid where their sum is exactly n; the certificate counts the step to it."""
    value, moved = weights_on_grid(solution.value)
    radius = (solution.certificate.output_radius + moved) * ROUND_UP
    backward = solution.certificate.backward_error
    if backward is not None:
        backward = (backward + moved / len(value)) * ROUND_UP
    certificate = replace(
        solution.certificate,
        output_radius=radius,
        relative_radius=radius / len(value),
        backward_error=backward,
    )
    return replace(solution, value=value, certificate=certificate)


def refuse_unsolvable(
    program: FirstStage, universe: MappedUniverse, solver: str | Solver = "first_certified"
) -> None:
    """Raise CalibrationError where a release would not have the weights that are declared.

    It would have 1, or any. It is judged by public facts alone: the cones of what is declared, the
    solver, and solves on public examples of the universe, ordinary and degenerate. A program that
    is certified on one of them may still have no weights on others: that is no reason to refuse,
    because it would tell of the records.
    """
    if isinstance(program, PrivateFirstStage) or program.certified_error(universe) is not None:
        return  # which has weights on every dataset
    key = program, universe, _quickest(private_solver(solver))
    try:
        _refuse_unsolvable(*key)
    except TypeError:  # a user's program need not be hashable
        _refuse_unsolvable.__wrapped__(*key)


@lru_cache(maxsize=64)
def _refuse_unsolvable(program: FirstStage, universe: MappedUniverse, solver: Solver) -> None:
    n = universe.n_samples
    covers_all = program.stability(universe).V >= 2.0 * n
    reasons: list[str] = []
    for size in sorted({min(n, _EXAMPLE), n}):
        for records in replace(universe, n_samples=size).examples():
            try:
                solved = solve(
                    program.instance(records), solver=solver, tolerance=GAP_TOLERANCE, throw=False
                )
            except CertificateError as error:  # of the declared problem, whatever the records are
                raise CalibrationError(f"{program.name}: {error}") from None
            except InfeasibleError as error:
                reasons.append(str(error))
                continue
            if solved.certified or (covers_all and not solved.substituted):
                return
            if solved.substituted:
                reasons.append("; ".join(solved.failures) or "no weights meet the constraints")
                continue
            reasons.append(f"{solved.solver} ended with status {solved.status.value}")
    raise CalibrationError(
        f"{program.name}: no certified weights on public examples of {n} records ({reasons[-1]}), "
        "so that a release would have arbitrary ones: relax its constraints, or choose another "
        "program or solver"
    )


def _quickest(solver: Solver) -> Solver:
    """The solver without what cannot be certified where Clarabel fails.

    Clarabel is the judge's own solver of a gap.
    """
    if not isinstance(solver, FirstCertified):
        return solver
    if not any(isinstance(one, Clarabel) for one in solver.solvers):
        return solver
    return FirstCertified(tuple(one for one in solver.solvers if not isinstance(one, SCS)))


def released_minimizer(
    instance: Instance,
    execution: Execution,
    within: float | None,
    tolerance: float | None = None,
    outputs: bool = True,
) -> Solution:
    """The minimizer for a release, whether it is certified or not.

    Nothing that depends on the records stops it: what is not certified comes back as it is, and
    where no solver returns a point, so does an uncertified start.

    Parameters
    ----------
    instance
        The program at the records.
    execution
        How the plan is run.
    within
        A public radius to certify; None where none is known.
    tolerance
        A relative one. Where neither is known it is that of the run, which an unlucky dataset may
        miss.
    outputs
        False to compute its ``point`` alone, and no weights.
    """
    if within is None and tolerance is None:
        tolerance = attainable(instance, execution.tolerance)
    try:
        return minimizer(instance, execution.solver, tolerance, within, outputs=outputs)
    except (CertificateError, InfeasibleError):
        return uncertified_start(instance)


def attainable(instance: Instance, tolerance: float) -> float:
    """The tolerance, or that of a duality gap where it alone certifies, which reaches no less."""
    return max(tolerance, GAP_TOLERANCE) if instance.half_digits else tolerance
