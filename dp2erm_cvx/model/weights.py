"""Weights that are the variable of a read problem, solved in its dual and certified by it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from functools import cached_property

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, ROUND_UP_SUMS, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import InfeasibleError, ProgramError, SolverError
from dp2erm_cvx.model.composite import Composite, LocalError, PointClaim
from dp2erm_cvx.weighting.bounds.public_radius import StepConstants
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.solving.dataset import arms_of_records
from dp2erm_cvx.weighting.solving.dual import DualProblem, DualSolution
from dp2erm_cvx.weighting.solving.multipliers import nearest_weights
from dp2erm_cvx.weighting.solving.separation import refuse_separated

#: A residual of constraints, as a part of n, up to which nobody asks for a proof that there are no
#: weights.
SMALL_RESIDUAL = 1e-9


class WeightsModel(Composite):
    """A weighting form at records; its variable is the weights (n,) as they are solved for.

    Parameters
    ----------
    form
        What was read of the problem.
    records
        The records.
    steps
        Public constants of the steps that reach the public radius.
    radius
        Public bound of ``||w_hat - w||_1`` after those steps, as they are solved for; None where
        none is proved.
    convexity
        Strong convexity of the objective in every weight, 0 where it is not known.
    """

    self_concordance = math.inf
    smoothness = math.inf

    def __init__(
        self,
        form: WeightingForm,
        records: Records,
        steps: StepConstants,
        radius: float | None,
        convexity: float,
    ) -> None:
        self.form = form
        self.dual: DualProblem | None = None
        self.records = records
        if form.hard:
            # never private: what the records do not admit is said
            self.dual = DualProblem(form, records)
        # what these records do not admit must not be told by a refusal: weights 1 take their place
        with contextlib.suppress(InfeasibleError, SolverError):
            self.dual = self.dual or DualProblem(form, records)
        self.steps = steps
        self.radius = radius
        self.dimension = form.n
        self.ridge = convexity
        arms = arms_of_records(records)
        self.low = form.low[arms]
        self.cap = np.minimum(form.cap[arms], float(form.n))
        self.factor = 1.0
        if form.sums.kind is SumKind.TREATED and np.any(arms):
            # controls weigh as many as the treated, who weigh 1: released weights have sum n
            self.factor = form.n / (2.0 * float(np.sum(arms)))

    @property
    def solves_itself(self) -> bool:
        return True

    @property
    def half_digits(self) -> bool:
        return self.form.kinked

    @property
    def constrained(self) -> bool:
        return self.form.hard

    def refuse_infeasible(self) -> None:
        """Raise InfeasibleError where it is proved that no weights meet the constraints.

        Nothing is asked where weights were found whose residual is small.
        """
        if not self.form.hard or self.dual is None:
            return
        residual = self.anchor.residual
        if residual is None or residual.largest > SMALL_RESIDUAL:
            refuse_separated(self.dual.data, self.records, self.anchor.prices)

    def clipped(self, point: Array) -> Array:
        """The nearest weights in their boxes, which have the sums of their blocks.

        A point of a solver misses both by its own tolerance. Weights that meet their sums stay as
        they are.
        """
        inside = np.clip(point, self.low, self.cap)
        if self.dual is None or not np.all(np.isfinite(inside)):
            return inside
        return nearest_weights(self.dual.data, inside)

    def value(self, v: Array) -> float:
        return math.inf if self.dual is None else self.dual.value(v)

    def gradient(self, v: Array) -> Array:
        return np.zeros(self.dimension) if self.dual is None else self.dual.slope(v)

    def hessian(self, v: Array) -> Array:
        """Refuse: nothing asks a model that judges itself for a Hessian of n rows and columns."""
        raise ProgramError("weights are solved in the dual, which has no Hessian of the weights")

    def rounding(self, v: Array) -> float:
        return 0.0

    def start(self) -> Array:
        return self.clipped(np.ones(self.dimension))

    def output(self, v: Array) -> Array:
        return self.factor * self.clipped(v)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return self.factor * math.sqrt(self.dimension) * radius

    def output_scale(self, v: Array) -> float:
        return float(self.dimension)

    @cached_property
    def anchor(self) -> DualSolution:
        """Weights by Newton's method in the dual; by public steps where those are not near enough.

        Weights 1, of which nothing is proved, where the records admit no others.
        """
        if self.dual is None:
            even = np.ones(self.dimension)
            return DualSolution(even, np.zeros(0), np.zeros(0), math.inf, 0, fallback=True)
        found = self.dual.newton()
        if self.radius is None or found.claim <= self.radius:
            return found
        proved = self.dual.by_public_steps(self.steps)
        return replace(proved, steps=found.steps + proved.steps)

    def claimed(self, point: Array) -> PointClaim:
        """Certificate of weights: their distance to the anchor, and what is proved about that.

        The distance of the point to the boxes is added, as the weights in them are compared.
        """
        anchor = self.anchor
        inside = self.clipped(point)
        away = float(np.sum(np.abs(inside - anchor.weights))) * ROUND_UP_SUMS
        outside = float(np.sum(np.abs(point - inside))) * ROUND_UP_SUMS
        if anchor.residual is not None:
            farther = anchor.residual.farther(away + outside)
            return PointClaim(math.inf, math.inf, away, backward=farther.largest)
        distance = self.factor * (anchor.claim + away) * ROUND_UP + outside
        return PointClaim(distance, distance, away, found=not anchor.fallback)

    def minimized(self, start: Array, limit: int) -> tuple[Array, int]:
        return self.anchor.weights, self.anchor.steps

    def by_gradient(self, start: Array) -> tuple[Array, int]:
        """Weights by public steps alone where a radius is proved, else those of the anchor."""
        if self.radius is None or self.dual is None:
            return self.minimized(start, 0)
        proved = self.dual.by_public_steps(self.steps)
        return proved.weights, proved.steps
