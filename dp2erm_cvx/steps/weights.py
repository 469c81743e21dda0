"""Weights: no step of their own, because they stay private and enter what is released through V."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sums import GRID_ERROR
from dp2erm_cvx.privacy import BoundFamily, StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.program.first_stage import refuse_unproved
from dp2erm_cvx.program.stage import model_of
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve import Certificate, Solution, Stats, Status
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.stability.base import EXACT
from dp2erm_cvx.steps.solving import refuse_unsolvable, released_weights, to_grid
from dp2erm_cvx.steps.step import Execution, Inputs
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class WeightsPlan:
    """Weights of a resolved ``program``, certified to a relative ``tolerance`` that ``bound`` counts.

    Without a program every weight is 1. ``known`` says that a public bound covers their numerical error on
    every dataset, or that V covers all weights.
    """

    program: FirstStage | None
    bound: StabilityBound
    tolerance: float
    n_samples: int
    known: bool = True

    @property
    def covers_all(self) -> bool:
        """Whether V is at its cap 2n, which no two nonnegative vectors of sum n exceed: minimizers or not."""
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
        """Weights (n,) on the grid where their sum is n: solved for, or read at a released coefficient."""
        assert self.program is not None
        if isinstance(self.program, PrivateFirstStage):
            return weights_at(self.program, inputs, released["propensity"], execution)
        return released_weights(self.program.instance(inputs.records), execution)


def weights_one(n_samples: int) -> WeightsPlan:
    """Weights 1, whose bound is V = 2."""
    return WeightsPlan(None, uniform_weights(n_samples), 0.0, n_samples)


def plan_weights(
    program: FirstStage,
    universe: Universe,
    tolerance: float,
    family: BoundFamily,
    coefficient_norm: float | None = None,
) -> WeightsPlan:
    """The bound of computed weights; those of a private coefficient need a public bound on its norm.

    Raises CalibrationError where no theorem of the ``family`` covers the program, and where it has no
    weights on any public example.
    """
    n = universe.n_samples
    bound = program.stability(universe, family)
    # here as well, because a program may answer for its stability in a way of its own
    refuse_unproved(program, bound, n)
    if bound.V < 2.0:
        raise CalibrationError(
            f"{bound.theorem} claims V = {bound.V!r}: some weight is at least 1, so V is at least 2"
        )
    refuse_unsolvable(program, universe)
    error = public_number("tolerance", tolerance, at_least=0.0) * n
    if isinstance(program, PrivateFirstStage) and coefficient_norm is not None:
        stated = program.certified_error_at(universe, coefficient_norm)
    else:
        stated = program.certified_error(universe)
    certain = not error or stated is None or stated + GRID_ERROR <= error / n
    bound = _of_computed(bound, error, n, certain=certain)
    # no error assumes exact weights
    known = stated is not None or bound.V >= 2.0 * n or not error
    return WeightsPlan(program, bound, tolerance, n, known)


def weights_at(
    program: PrivateFirstStage, inputs: Inputs, coefficient: Array, execution: Execution
) -> Solution:
    """Weights at a released coefficient (p,), of which only the error of the arithmetic is left."""
    instance = program.instance(inputs.records)
    model = model_of(instance, Composite)  # type: ignore[type-abstract]
    point = model.penalty.set.project(coefficient)
    certificate = Certificate(
        primal_residual=0.0,
        dual_residual=0.0,
        duality_gap=None,
        rounding=0.0,
        strong_convexity=instance.strong_convexity,
        radius=0.0,
        output_radius=model.output_radius(point, 0.0),
        relative_radius=math.inf,  # that of the weights on the grid
        basis="closed form",
    )
    value, stats = model.output(point), Stats("closed form", 0, 0.0)
    return to_grid(Solution(value, point, Status.SOLVED, certificate, execution.tolerance, stats))


def _of_computed(bound: StabilityBound, error: float, n_samples: int, *, certain: bool) -> StabilityBound:
    """The bound for computed weights, each within ``error`` of the exact ones in the l1 norm.

    V sums every weight's movement once, with both weights of the changed record in place of theirs: it
    grows by at most the two errors. W1 counts the largest common weight twice on top. W2 as printed counts
    how many weights differ, which the least error makes n: it is raised only as far as keeps
    ``V <= sqrt(2) W2``, which is what certifies a calibration by it. No nonnegative weights of sum n have a V
    above 2n, computed ones included: that is their bound where it is not ``certain`` that they are certified.
    """
    cap = 2.0 * n_samples
    # the error is counted, so that exact minimizers are no longer assumed
    return replace(
        bound,
        assumptions=tuple(one for one in bound.assumptions if not (error > 0.0 and one == EXACT)),
        V=min(bound.V + 2.0 * error, max(bound.V, cap)) if certain else max(bound.V, cap),
        W1=None if bound.W1 is None else bound.W1 + 4.0 * error,
        W2=None if bound.W2 is None else bound.W2 + 3.0 * error * math.sqrt(1.0 + n_samples),
    )
