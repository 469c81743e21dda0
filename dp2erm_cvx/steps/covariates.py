"""Where the covariates lie: their mean, which is subtracted, and how far they spread around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp2erm_cvx.blocks import VIEW
from dp2erm_cvx.calibration import IntegerNoise, Noise, calibrate_integers
from dp2erm_cvx.calibration.sums import bracketed
from dp2erm_cvx.codebook import OTHER
from dp2erm_cvx.domain import Array, Domain, Records, clip_norm
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.number import SumsPlan, TreatmentRatePlan
from dp2erm_cvx.steps.record_map import UNIT
from dp2erm_cvx.steps.step import Inputs, Step, StepPlan, StepResult, divide
from dp2erm_cvx.universe import Universe

#: Share of the records that miss a number whose gaps are marked, where nothing is declared.
MISSING = 0.05


@dataclass(frozen=True)
class CovariateLaw:
    """What is guessed in public of the scaled covariates: normal, independent of each other.

    Attributes
    ----------
    spreads, offsets
        Standard deviations (k,), and how far the means lie off 0.
    switches
        Which of them (k,) are 0 or 1 before they are centered.
    zeros
        What scales to 0 (k,), as a share of ones of a switch; 0 for the others.
    """

    spreads: tuple[float, ...]
    offsets: tuple[float, ...]
    switches: tuple[bool, ...]
    zeros: tuple[float, ...]

    @classmethod
    def of(cls, domain: Domain, n_features: int) -> CovariateLaw:
        """That of a domain: numbers spread over a third of half their range, around what scales to 0.

        A covariate that is 0 or 1 has its expected share of ones, that of the declared center, else one in as
        many as its column has levels, an undeclared one among them unless it counts as "other". Without
        ranges all lie at two thirds of the norm bound.
        """
        spreads, offsets = np.full(n_features, 1.0 / 3.0), np.zeros(n_features)
        switches, zeros = np.zeros(n_features, dtype=bool), np.zeros(n_features)
        if domain.ranges is None:
            spreads[:] = domain.features_bound / (1.5 * math.sqrt(n_features))
        book, declared = domain.codebook, domain.center if isinstance(domain.center, Mapping) else {}
        for index, name in enumerate(domain.columns or () if book is not None else ()):
            assert book is not None
            column, level = book.origin(name)
            if level is None:
                continue
            levels = book.levels.get(column, ())
            # levels that are not declared are one more
            expected = MISSING if column in book.missing else 1.0 / (len(levels) + (OTHER not in levels))
            share = min(max(declared.get(name, expected), 0.01), 0.99)
            spreads[index], switches[index] = math.sqrt(share * (1.0 - share)), True
            zeros[index] = declared.get(name, 0.0)
            offsets[index] = share - zeros[index]
        return cls(*(tuple(column.tolist()) for column in (spreads, offsets, switches, zeros)))

    def box(self, universe: Universe) -> tuple[Array, Array]:
        """The least and the largest value (k,) of every scaled covariate; a switch is at least 0, at most 1.

        Both hold 0, which a record that does not count adds.
        """
        low, high = _box(universe)
        low = np.where(self.switches, -np.array(self.zeros), low)
        high = np.where(self.switches, 1.0 - np.array(self.zeros), high)
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    @property
    def _squared(self) -> tuple[float, float]:
        """Scale and degrees of freedom of the chi-squared law with the moments of the squared norm."""
        squares, shifts = np.square(self.spreads), np.square(self.offsets)
        mean = float(np.sum(squares + shifts))
        variance = float(np.sum(2.0 * squares**2 + 4.0 * shifts * squares))
        return variance / (2.0 * mean), 2.0 * mean**2 / variance

    def quantile(self, level: float) -> float:
        """Of the norm."""
        scale, degrees = self._squared
        return math.sqrt(scale * float(special.chdtri(degrees, 1.0 - level)))

    def mean_square(self, factor: float, bound: float) -> float:
        """``E min(factor ||x||^2, bound^2) / bound^2``."""
        scale, degrees = self._squared
        z = bound**2 / (factor * scale)
        inner = factor * scale * degrees / bound**2 * float(special.chdtr(degrees + 2.0, z))
        return inner + float(special.chdtrc(degrees, z))

    def within(self, bound: float) -> tuple[float, ...]:
        """Root mean squares (k,) of what a norm ``bound`` leaves of the covariates around their means."""
        part = bound * math.sqrt(self.mean_square(1.0, bound)) / math.hypot(*self.spreads)
        return tuple(part * one for one in self.spreads)

    def factor(self, share: float, bound: float) -> float:
        """The factor of squared norms at which :meth:`mean_square` is ``share``, from a thousandth to 30."""
        return bracketed(lambda factor: self.mean_square(factor, bound) >= share, 30.0, 1e-3)


@dataclass(frozen=True)
class CovariateMean(Step):
    """The mean of the scaled covariates, from a ``share`` of the budget: it is subtracted from all of them.

    The records of later steps are then shrunk radially to norm ``bound``. Both are maps of single records at
    what was released (Theorem 10), into a domain that is public whatever the mean is.
    """

    name: ClassVar[str] = "mean"

    law: CovariateLaw
    bound: float
    share: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.share, self.noise)

    def hands(self, universe: Universe) -> Universe:
        """Records whose covariates differ from a point of the box by another point of it."""
        low, high = _box(universe)
        bound = math.hypot(universe.domain.intercept, self.bound)
        width = tuple((high - low).tolist())
        domain = replace(
            universe.domain, covariate_bound=bound, coordinate_bound=width, ranges=None, center=None
        )
        return replace(universe, domain=domain)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> CovariateMeanPlan:
        """Calibrate the noise to the box of the covariates and to their norm, whichever is smaller.

        With a delta by Gaussian or by Laplace noise, whichever is predicted to err less.
        """
        laws = dict.fromkeys([Noise(self.noise).on_numbers, Noise.GAMMA])
        return min((self._plan(universe, budget, law) for law in laws), key=lambda plan: plan.predicted_error)

    def _plan(self, universe: Universe, budget: Budget, law: Noise) -> CovariateMeanPlan:
        low, high = self.law.box(universe)
        k, norm = universe.n_features, 2.0 * universe.domain.features_bound
        pure = law is Noise.GAMMA
        box = float(np.sum(high - low) if pure else np.linalg.norm(high - low))
        reach = min(box, norm * math.sqrt(k) if pure else norm)
        # every entry is rounded to the nearest integer
        shift = math.ceil(UNIT * reach * (1.0 + 1e-9)) + (k if pure else math.isqrt(k) + 1)
        noise = replace(calibrate_integers(shift, budget, law), unit=1.0 / UNIT)
        return CovariateMeanPlan(universe, noise, None, None, self.exact, self.law, self.hands(universe))


@dataclass(frozen=True)
class CovariateMeanPlan(SumsPlan):
    """The calibrated sums of the scaled covariates; ``centered`` is the universe of the later records."""

    name: ClassVar[str] = "mean"

    calibration: IntegerNoise
    law: CovariateLaw
    centered: Universe

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one mean of a scaled covariate."""
        return self.calibration.variance / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """Sums (k,) of scaled covariates in units of ``1/UNIT``."""
        box = self.law.box(self.universe)
        return [int(total) for total in np.sum(records.blocks.map(partial(_total, box=box)), axis=0)]

    def mean(self, released: Mapping[str, Array]) -> Array:
        """The mean (k,) of the scaled covariates, inside their box: a function of what was released."""
        low, high = self.law.box(self.universe)
        sums = np.asarray(released[self.name], dtype=np.float64) / UNIT
        return np.clip(sums / _mass(self.universe, released), low, high)

    def around(self, released: Mapping[str, Array]) -> CovariateLaw:
        """The law of covariates around the released mean: switches spread by their share of ones."""
        law, noise = self.law, math.sqrt(self.predicted_error)
        middle = np.array(law.zeros) + self.mean(released)
        share = np.clip(middle, min(noise, 0.5), max(1.0 - noise, 0.5))
        spreads = np.where(law.switches, np.sqrt(share * (1.0 - share)), law.spreads)
        return replace(law, spreads=tuple(spreads.tolist()), offsets=(noise,) * len(spreads))

    def hand_on(self, inputs: Inputs, found: StepResult, released: Mapping[str, Array]) -> Inputs:
        return replace(inputs, records=self.mapped(inputs.records, released))

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records less the mean, shrunk into the ball of the later universe."""
        domain = self.centered.domain
        make = partial(_remade, partial(_centered, mean=self.mean(released)), domain)
        return records.mapped(make, _outcomes, domain, self.centered.n_columns)


@dataclass(frozen=True)
class MeanSquare(Step):
    """The mean square of the norm of the covariates over its bound, from a ``share`` of the budget.

    It is the curvature that a regression has in its slopes, so that shrinkage is predicted from it. What it
    says of the size of covariates against the ``law`` that was guessed divides them, and they are shrunk to
    ``norm``: a map of single records at what was released (Theorem 10).
    """

    name: ClassVar[str] = "spread"

    law: CovariateLaw
    share: float
    norm: float
    noise: Noise | str = Noise.GAMMA
    exact: bool = True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """Pure noise leaves delta to the others."""
        return divide(budget, self.share, self.noise)

    def hands(self, universe: Universe) -> Universe:
        """Records whose covariates have at most this norm."""
        return universe.shrunk(self.norm)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, StepPlan]) -> MeanSquarePlan:
        """Calibrate the noise: one record moves the sum by one at most."""
        noise = replace(calibrate_integers(UNIT, budget, self.noise), unit=1.0 / UNIT)
        mean = earlier.get(CovariateMean.name)
        mean = mean if isinstance(mean, CovariateMeanPlan) else None
        handed = self.hands(universe)
        return MeanSquarePlan(universe, noise, None, None, self.exact, self.law, mean, handed)


@dataclass(frozen=True)
class MeanSquarePlan(SumsPlan):
    """The calibrated sum of squares, and the law of covariates that was guessed, around a released mean.

    ``handed`` is the universe of the later records.
    """

    name: ClassVar[str] = "spread"

    calibration: IntegerNoise
    law: CovariateLaw
    mean: CovariateMeanPlan | None
    handed: Universe

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of the mean square, as a share of the squared bound."""
        return self.calibration.variance / (self.universe.mass * self.universe.n_samples) ** 2

    def exact_sums(self, records: Records, released: Mapping[str, Array]) -> Sequence[int]:
        """The sum of squared norms over their bound, in units of ``1/UNIT``."""
        return (sum(records.blocks.map(partial(_squares, bound=self.universe.domain.features_bound))),)

    def spreads(self, released: Mapping[str, Array]) -> Array:
        """Root mean squares (k,) of the covariates that are handed on: a function of what was released."""
        law, squares, scale = self._law(released)
        bound = self.handed.domain.features_bound
        square = self._share(released)
        if scale != 1.0 or bound < self.universe.domain.features_bound:
            square = law.mean_square(squares * scale**2, bound)
        if self.mean is not None:
            noise = math.hypot(*law.offsets) * scale / bound
            square = max(square - noise**2, 0.3 * square)
        return np.array(law.spreads) * (bound * math.sqrt(square) / math.hypot(*law.spreads))

    def scale(self, released: Mapping[str, Array]) -> float:
        """What covariates are multiplied by before they are shrunk: a function of what was released."""
        return self._law(released)[2]

    def relative_error(self, released: Mapping[str, Array]) -> float:
        """The standard deviation of the noise of the mean square, as a share of what was released."""
        return math.sqrt(self.predicted_error) / self._share(released)

    def hand_on(self, inputs: Inputs, found: StepResult, released: Mapping[str, Array]) -> Inputs:
        return replace(inputs, records=self.mapped(inputs.records, released))

    def mapped(self, records: Records, released: Mapping[str, Array]) -> Records:
        """The records, scaled and shrunk into the ball of the later universe."""
        scale, domain = self.scale(released), self.handed.domain
        if scale == 1.0 and domain == self.universe.domain:
            return records
        make = partial(_remade, partial(_scaled, scale=scale, bound=domain.features_bound), domain)
        return records.mapped(make, _outcomes, domain, self.handed.n_columns)

    @property
    def _part(self) -> float:
        """Of the squared norm bound: what is kept where the guessed law is right."""
        return (self.handed.domain.features_bound / self.universe.domain.features_bound) ** 2

    def _share(self, released: Mapping[str, Array]) -> float:
        """The mean square over the squared bound, at least what its noise may be."""
        n = _mass(self.universe, released)
        noise = self.calibration.scale * self.calibration.unit / n
        return min(max(float(released[self.name][0]) / UNIT / n, 2.0 * noise, 0.02 * self._part), 1.0)

    def _law(self, released: Mapping[str, Array]) -> tuple[CovariateLaw, float, float]:
        """The law at a released mean, what squares are of it, and what covariates are multiplied by."""
        law = self.law if self.mean is None else self.mean.around(released)
        share, bound = self._share(released), self.universe.domain.features_bound
        noise = math.sqrt(self.predicted_error)
        upper = law.factor(min(share + noise, 0.999), bound)
        # no record reaches farther than the bound
        scale = math.sqrt(max(1.0 / upper, self._part))
        return law, law.factor(share, bound), 1.0 if self._part == 1.0 and upper >= 0.8 else scale


def _box(universe: Universe) -> tuple[Array, Array]:
    ends = universe.domain.ends(universe.n_features)
    if ends is None:
        bound = np.full(universe.n_features, universe.domain.features_bound)
        return -bound, bound
    return ends


def _total(block: Records, box: tuple[Array, Array]) -> NDArray[np.int64]:
    counted = block.counts[:, None] * np.clip(block.covariates, *box)
    found: NDArray[np.int64] = np.rint(UNIT * counted).astype(np.int64).sum(axis=0)
    return found


def _squares(block: Records, bound: float) -> int:
    share = np.minimum(np.linalg.norm(block.covariates, axis=1) / bound, 1.0)
    return int(np.rint(UNIT * block.counts * share**2).astype(np.int64).sum())


def _mass(universe: Universe, released: Mapping[str, Array]) -> float:
    """What all records count together: n, or the released sum of their weights, or a guess of it."""
    if not universe.domain.weighted or TreatmentRatePlan.name not in released:
        return universe.mass * universe.n_samples
    return max(TreatmentRatePlan.mass(released[TreatmentRatePlan.name]), 1.0)


def _outcomes(block: Records) -> Array:
    return block.y


def _scaled(rows: Array, scale: float, bound: float) -> Array:
    return scale * clip_norm(rows, bound / scale)


def _centered(rows: Array, mean: Array) -> Array:
    return rows - mean


def _remade(of: Callable[[Array], Array], domain: Domain, block: Records) -> Records:
    """The records of a block with other covariates (n, k), put into the box and the ball of a domain.

    A few rows at a time, as several tables of them are made on the way.
    """
    first, covariates = (1 if domain.intercept else 0), block.covariates
    rows = np.full((len(covariates), first + covariates.shape[1]), domain.intercept)
    for begin in range(0, len(rows), VIEW):
        own = slice(begin, begin + VIEW)
        rows[own, first:] = domain.inside(of(covariates[own]))
    return Records(rows, block.a, block.y, domain, block.sampling)
