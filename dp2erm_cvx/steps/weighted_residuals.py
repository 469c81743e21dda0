"""An effect by the weights of a declared scheme: one weighted sum of residuals (Theorem 28).

The proofs are in ``docs/theory/scheme_effects.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.calibration import IntegerNoise, Noise
from dp2erm_cvx.calibration.numbers import LARGEST_INTEGER, calibrate_integers
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError, placed
from dp2erm_cvx.model.sums import grid_error, grid_exponent, weights_on_grid
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.privacy import EXACT, Budget, StabilityBound
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.steps.nuisances import LinearNuisances
from dp2erm_cvx.steps.record_map import RAREST, UNIT, treated_share
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import IntegerSums, in_parts
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm

#: Name of the step that answers.
WEIGHTED_SUM = "weighted_sum"
#: The setting of a scheme that takes the released share of the treated.
SHARE_SETTING = "treated"
#: Residuals are rounded to at most so many steps of their bound.
_FINEST = 2**20
#: Room for the noise beside the sum, in its scales.
_TAIL = 64.0
#: The rate that a plan is for, which decides whether a bound is used that an author states.
MIDDLE_RATE = 0.5
#: Rates that the weights have to be derived at before a plan is made: both ends, and the middle.
PLANNED_RATES = (1.0 / RAREST, MIDDLE_RATE, 1.0 - 1.0 / RAREST)

Released = Mapping[str, Array]


@dataclass(frozen=True)
class WeightsAtRate:
    """What is public of the weights of a scheme at one released rate of treatment.

    Parameters
    ----------
    program
        The scheme at this rate, read where its records are.
    stability
        The bound V of exact weights.
    radius
        Bound of ``||w_hat - w||_1`` on every dataset; None where no number of steps is proved.
    movement
        V', the bound of the weights that are computed and put on their grid: at most 2n.
    """

    program: WeightsProgram
    stability: StabilityBound
    radius: float | None
    movement: float

    @property
    def in_steps(self) -> int:
        """V' in steps of the grid of weights, rounded up."""
        n = self.program_size
        exact = math.ceil(math.ldexp(self.movement, grid_exponent(n)) * ROUND_UP)
        return min(exact, 2 * n << grid_exponent(n))

    @property
    def program_size(self) -> int:
        """n, at which the program was read."""
        assert self.program.place is not None
        return self.program.place[1]


def weights_at_rate(
    program: WeightsProgram, universe: MappedUniverse, rate: float
) -> WeightsAtRate:
    """The scheme at a released rate of treatment, with its bounds.

    Parameters
    ----------
    program
        The scheme as it is declared. A setting ``treated`` becomes the rate.
    universe
        Where its records are.
    rate
        Between 1/50 and 49/50.

    Raises CalibrationError where some dataset has no weights, and DeclarationError where the scheme
    is none that Theorem 28 is about.
    """
    if SHARE_SETTING not in program.setting_fields():
        rate = MIDDLE_RATE  # one derivation for all rates, which it does not ask for
    try:
        return _weights_at_rate(program, universe, rate)
    except TypeError:  # a setting of a user's own need not be hashable
        return _weights_at_rate.__wrapped__(program, universe, rate)


@lru_cache(maxsize=64)
def _weights_at_rate(
    program: WeightsProgram, universe: MappedUniverse, rate: float
) -> WeightsAtRate:
    made = at_rate(program, rate).at(universe)
    n = universe.n_samples
    # what a plan does not rest on, no released rate makes a release rest on
    middle = made
    if rate != MIDDLE_RATE:
        middle = weights_at_rate(program, universe, MIDDLE_RATE).program
    trusted = middle.uses_stated_bound(universe)
    stability = made.stability(universe) if trusted else made.derived_bound(universe)
    radius = None
    if isinstance(made.form(universe), WeightingForm):
        public = made.certified_error(universe)
        radius = None if public is None else public * n
    movement = 2.0 * n
    if radius is not None:
        # sums of computed weights are off by at most the radius, which the step to the grid adds
        off = 2.0 * radius + n * grid_error(n)
        movement = min(stability.V + 2.0 * off, 2.0 * n)
    return WeightsAtRate(made, stability, radius, movement)


def at_rate(program: WeightsProgram, rate: float) -> WeightsProgram:
    """The scheme at a rate of treatment: itself, where it has no setting ``treated``."""
    if SHARE_SETTING not in program.setting_fields():
        return program
    try:
        return _at_rate(program, rate)
    except TypeError:  # a setting of a user's own need not be hashable
        return _at_rate.__wrapped__(program, rate)


@lru_cache(maxsize=64)
def _at_rate(program: WeightsProgram, rate: float) -> WeightsProgram:
    made: WeightsProgram = program.with_settings(**{SHARE_SETTING: rate})
    return made


def refuse_other_weights(program: Program, universe: MappedUniverse) -> None:
    """Raise DeclarationError for weights that Theorem 28 and its interval are not about."""
    name = program.name
    if not isinstance(program, WeightsProgram):
        raise DeclarationError(
            f"weights = {name!r}: an effect is answered by weights that are the variable of a "
            "problem (scheme); those of a loss of margins, known weights and exact moments have "
            "no proof"
        )
    form = at_rate(program, 0.5).form(universe)
    if isinstance(form, str) and program.scheme.statement is not None:
        raise DeclarationError(
            f"weights = {name!r}: the V that its author states is of exact weights, and how far "
            f"from them computed ones are is not known, as {form}"
        )
    if isinstance(form, str):
        raise DeclarationError(
            f"weights = {name!r}: V is 2n, which would hide every effect, as {form}"
        )
    if form.hard:
        raise DeclarationError(
            f"weights = {name!r}: V is 2n under exact constraints: price the imbalance"
        )
    if form.sums.kind is not SumKind.ALL:
        raise DeclarationError(
            f"weights = {name!r}: has totals by arm, whose denominators have no proof: write one "
            "sum, and compare the masses of the arms with n/2 in the imbalance"
        )


@dataclass(frozen=True)
class ReleasedLines:
    """Residuals of a released regression with an intercept by arm and slopes in common.

    The prediction for a record is ``b_a + g(x)``: b_a is the mean outcome of arm a where all
    covariates are 0, and g the same for both arms, so that ``m_1 - m_0`` is one released number for
    all records.

    Parameters
    ----------
    nuisances
        The released regression, with the rate of treatment.
    bound
        r_0: residuals are clipped to this size, in units of the outcome.
    """

    nuisances: LinearNuisances
    bound: float

    def planned(self, earlier: Mapping[str, Any]) -> Self:
        """The lines once the regression is planned."""
        return replace(self, nuisances=self.nuisances.planned(earlier))

    def at(self, released: Released, n_samples: int) -> Self:
        """The lines with what follows from ``released`` worked out."""
        return replace(self, nuisances=self.nuisances.worked_out(released, n_samples))

    @property
    def rate(self) -> float:
        """The released rate of treatment."""
        rate: float = self.nuisances.rate
        return rate

    def steepness(self, released: Released) -> tuple[float, float]:
        """Derivatives of the mean outcome of the untreated and the treated by their lines, at 0."""
        values = self.nuisances.two_values
        if values is None:
            return 1.0, 1.0
        untreated, treated = self.nuisances.levels(released)
        return values.steepness(float(untreated[0])), values.steepness(float(treated[0]))

    def intercepts(self, released: Released) -> tuple[float, float]:
        """b_0 and b_1, in units of the outcome, less its center."""
        nowhere = np.zeros((1, len(self.nuisances.spreads)))
        untreated = self.nuisances.outcome(nowhere, np.zeros(1), released)
        treated = self.nuisances.outcome(nowhere, np.ones(1), released)
        return float(untreated[0]), float(treated[0])

    def common(self, x: Array, released: Released) -> Array:
        """What covariates add to the mean outcome of either arm.

        It is ``g(x) = sum_a pi_a (m_a(x) - m_a(0))``: a line where the outcome has more than two
        values; those of two follow the mean outcomes that the line stands for, record by record.

        Parameters
        ----------
        x
            Covariates (n, k).
        released
            Numbers by the names of the steps.

        Returns
        -------
        Array
            g (n,), in units of the outcome.
        """
        origin_0, origin_1 = self.intercepts(released)
        untreated = self.nuisances.outcome(x, np.zeros(len(x)), released) - origin_0
        treated = self.nuisances.outcome(x, np.ones(len(x)), released) - origin_1
        return np.asarray((1.0 - self.rate) * untreated + self.rate * treated)

    def ratios(self, records: Records, released: Released) -> Array:
        """Residuals over their bound, in [-1, 1] (n,).

        They are 0 where they are no number or a record does not count. Each is made of its own
        record alone. Private.
        """
        origin_0, origin_1 = self.intercepts(released)
        with np.errstate(all="ignore"):
            own = np.where(records.a == 1, origin_1, origin_0)
            predicted = own + self.common(records.covariates, released)
            ratio = (records.y - predicted) / self.bound
        ratio = np.where(np.isfinite(ratio) & (records.counts > 0.0), ratio, 0.0)
        return np.clip(ratio, -1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class ResidualSquares(IntegerSums):
    """The sum of squared residuals times squared base weights of their arms, for the interval.

    In units of the largest base times r_0, squared, one record adds at most 1, whatever the weights
    are: replacing it moves the sum by at most 1.

    Parameters
    ----------
    lines
        The released regression.
    """

    name: str = "squares"
    lines: ReleasedLines

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        return in_parts(UNIT, budget, self.noise)

    def knowing(self, earlier: Mapping[str, Step]) -> Self:
        return replace(self, lines=self.lines.planned(earlier))

    def exact_sums(self, records: Records, released: Released) -> Sequence[int]:
        """The sum, in parts of :data:`UNIT`."""
        lines = self.lines.at(released, records.n_samples)
        of_controls, of_treated = _squared_bases(lines.rate)
        bases = np.where(records.a == 1, of_treated, of_controls)
        squares = np.square(lines.ratios(records, released)) * bases
        return [int(np.rint(UNIT * np.minimum(squares, 1.0)).astype(np.int64).sum())]

    def mean_square(self, released: Released, more: float = 0.0) -> float:
        """The mean of squared residuals, each arm counted by half.

        It is in squared units of the outcome, and at most r_0 squared.

        Parameters
        ----------
        released
            Numbers by the names of the steps.
        more
            What is added to the released sum.
        """
        lines = self.lines.at(released, self.universe.n_samples)
        unit: float = self.calibration.unit
        total = float(released[self.name][0]) * unit + more
        return min(max(total / self._counted(lines.rate), 0.0), 1.0) * lines.bound**2

    def expected(self, mean_square: float, rate: float) -> Array:
        """The sum (1,) that is released at a mean square of residuals, without noise.

        Parameters
        ----------
        mean_square
            Of clipped residuals, in squared units of the outcome.
        rate
            Share of the treated.
        """
        unit: float = self.calibration.unit
        return np.array([mean_square / self.lines.bound**2 * self._counted(rate) / unit])

    def _counted(self, rate: float) -> float:
        """The sum where every residual is at its bound."""
        share = _squared_bases(rate)
        return self.universe.n_samples * ((1.0 - rate) * share[0] + rate * share[1])


def _squared_bases(rate: float) -> tuple[float, float]:
    """Squares of the base weights ``1/(2 pi_a)`` of controls and treated, over the larger one."""
    smaller = min(rate, 1.0 - rate)
    return (smaller / (1.0 - rate)) ** 2, (smaller / rate) ** 2


@dataclass(frozen=True, kw_only=True)
class WeightedSum(IntegerSums):
    """``I = sum_i s_i W_i k_i``: whole weights of a scheme times whole residuals.

    Its noise is Laplace noise. ``s = 1`` for the treated and -1 for controls, ``W_i = 2^q w_i``
    with ``sum W = n 2^q`` exactly, and ``|k_i| <= K`` the residual over r_0 in K-ths. One
    replacement moves I by at most ``K ceil(2^q V')`` (Theorem 28). V' follows from the released
    rate; K is the largest number for which that is at most one public number, so that the noise is
    planned before any rate is known.

    Parameters
    ----------
    program
        The scheme as it is declared.
    lines
        The released regression.
    finest
        Largest K; filled in by :meth:`plan`.
    """

    name: str = WEIGHTED_SUM
    program: WeightsProgram
    lines: ReleasedLines
    finest: int = 0

    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """The step, calibrated.

        It raises as :func:`weights_at_rate` does, at :data:`PLANNED_RATES`.
        """
        refuse_other_weights(self.program, universe)
        known = []
        for rate in PLANNED_RATES:
            with placed(f"weights, where a share of {rate:g} is treated"):
                known.append(weights_at_rate(self.program, universe, rate))
        middle = known[1]
        if middle.radius is None:
            raise CalibrationError(
                f"weights = {self.program.name!r}: no public number of steps reaches weights that "
                "V covers, so that V of what is computed is 2n: a larger ridge or a smooth price "
                "has one"
            )
        steps = middle.in_steps
        n = universe.n_samples
        whole = n << grid_exponent(n)
        room = LARGEST_INTEGER / (_TAIL * steps) * budget.epsilon
        finest = min(_FINEST, LARGEST_INTEGER // whole, math.floor(room))
        if finest < 1:
            raise CalibrationError(
                f"weights: the noise of n_samples = {n} is beyond 64-bit integers"
            )
        noise = calibrate_integers(finest * steps, budget, Noise.GAMMA)
        unit = 2.0 * self.lines.bound / (finest * float(whole))
        return replace(
            self,
            universe=universe,
            noise=Noise.GAMMA,
            calibration=replace(noise, unit=unit),
            bound=middle.stability,
            finest=finest,
        )

    def calibrate(self, universe: MappedUniverse, budget: Budget) -> IntegerNoise:
        planned: IntegerNoise = self.plan(universe, budget, {}).calibration
        return planned

    def knowing(self, earlier: Mapping[str, Step]) -> Self:
        return replace(self, lines=self.lines.planned(earlier))

    def at_rate(self, rate: float) -> WeightsAtRate:
        """The scheme at a released rate of treatment."""
        return weights_at_rate(self.program, self.universe, rate)

    def parts(self, known: WeightsAtRate) -> int:
        """K at a released rate: public."""
        sensitivity: int = self.calibration.sensitivity
        return min(self.finest, sensitivity // known.in_steps)

    def value(self, known: WeightsAtRate) -> float:
        """What one unit of the released integer is worth, in units of the outcome.

        It is 0 where K is 0.
        """
        parts = self.parts(known)
        n = self.universe.n_samples
        if parts == 0:
            return 0.0
        return 2.0 * self.lines.bound / (parts * math.ldexp(float(n), grid_exponent(n)))

    def at(self, where: MappedUniverse | Records, released: Released) -> Self:
        """The step with what follows from ``released`` worked out."""
        return replace(self, lines=self.lines.at(released, where.n_samples))

    @property
    def nuisances(self) -> LinearNuisances:
        """The released regression."""
        return self.lines.nuisances

    def exact_sums(self, records: Records, released: Released) -> Sequence[int]:
        """The sum before its noise. Private.

        Raises DeclarationError for records of another space or number than V is for.
        """
        n = records.n_samples
        if records.space != self.universe.space or n != self.universe.n_samples:
            raise DeclarationError(
                "records: are not of the universe that the weights are bounded in"
            )
        rate = treated_share(released["rate"], n)
        known = self.at_rate(rate)
        parts = self.parts(known)
        ratios = self.lines.at(released, n).ratios(records, released)
        residuals = np.rint(parts * ratios).astype(np.int64)
        signs = np.where(records.a == 1, 1, -1)
        return [int(np.sum(signs * whole_weights(known, records) * residuals))]

    def weights_of(self, records: Records, released: Released) -> Array:
        """The weights (n,) of the sum, for the data holder alone. Private."""
        n = records.n_samples
        known = self.at_rate(treated_share(released["rate"], n))
        return np.ldexp(whole_weights(known, records).astype(np.float64), -grid_exponent(n))

    @property
    def theorem(self) -> str:
        return "Theorem 28 (Laplace noise, weights that move by at most V)"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound of the weights asks for; how far they are from exact ones is counted."""
        own = (
            f"weights of {self.program.name} are within a public radius of the exact ones, which V "
            "counts"
        )
        return (*(text for text in self.bound.assumptions if text != EXACT), own)

    @property
    def programs(self) -> tuple[Program, ...]:
        return (self.program,)

    def bounded(self, program: Program) -> Program:
        return self.at_rate(MIDDLE_RATE).program

    @property
    def certified_by_design(self) -> bool:
        """True where V is derived: one that an author states is taken on trust."""
        return not self.stated_programs()


def whole_weights(known: WeightsAtRate, records: Records) -> NDArray[np.int64]:
    """Weights in steps of their grid (n,), of sum ``n 2^q`` exactly. Private.

    Newton's method where its certificate is within the public radius, public steps elsewhere, which
    reach it on every dataset. Nothing else of a solve is shown or acted upon.
    """
    model = known.program.instance(records).composite
    assert isinstance(model, WeightsModel)
    weights, _ = weights_on_grid(model.output(_computed(model)))
    exponent = grid_exponent(records.n_samples)
    return np.asarray(np.ldexp(weights, exponent), dtype=np.int64)


def _computed(model: WeightsModel) -> Array:
    """Weights (n,) within the public radius, where there is one.

    What a solver raises is told to nobody.
    """
    even = np.ones(model.dimension)
    if model.dual is None:
        return even
    try:
        found = model.dual.newton()
    except (ArithmeticError, ValueError, np.linalg.LinAlgError):
        found = None
    if model.radius is None:
        return even if found is None else found.weights
    if found is not None and found.claim <= model.radius:
        return found.weights
    return model.dual.by_public_steps(model.steps).weights
