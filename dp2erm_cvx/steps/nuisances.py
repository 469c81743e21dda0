"""Released nuisances at a record, and what ridge and noise leave of their slopes."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.special import expit

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.model.composite import contrasts
from dp2erm_cvx.steps.covariates import CovariateMean, MeanSquare
from dp2erm_cvx.steps.record_map import RAREST, Arms, Rows, Term, treated_share
from dp2erm_cvx.steps.sums import SideCounts, released_mass

#: The least share of a variance along the difference of the arms that is taken to lie within them.
LEAST_WITHIN = 0.2
#: The heterogeneity that is planned for, of the most that is declared: balancing the arms for all
#: of it costs more noise in slopes than it saves of bias where effects vary less. Intervals count
#: all of it.
TYPICAL = 0.5
#: Part of the shrinkage that is taken to be left after it was undone: what its curvature may be off
#: by.
LEFT = 0.25
#: No slope is stretched more: what ridge leaves less of is noise.
STRETCH = 3.0

#: The rate of treatment, or those of more than two arms.
Rate = float | tuple[float, ...]


@dataclass(frozen=True)
class Confounding:
    """Declarations about the treatment and the covariates, for predictions of bias.

    Parameters
    ----------
    distance
        D: how far the means of the two arms lie apart, in pooled standard deviations of the
        combination of covariates in which they differ most.
    least_share
        lambda: the least variance of a combination of standardized covariates, as a share of that
        of independent ones; 1 for covariates without collinearity.
    heterogeneity
        The standard deviation of effects given the covariates, in that of residuals.
    """

    distance: float = 1.0
    least_share: float = 1.0
    heterogeneity: float = 0.25

    @property
    def typical(self) -> float:
        """The heterogeneity that settings are chosen for: part of the most that there is."""
        return TYPICAL * self.heterogeneity

    def within(self, rate: Rate) -> float:
        """Share of the variance along the difference of the arms that lies within them: (A4).

        Of K arms no two are farther apart than the declared distance.
        """
        if isinstance(rate, tuple):
            between = 0.5 * (1.0 - math.fsum(part * part for part in rate)) * self.distance**2
            return max(1.0 - between, LEAST_WITHIN)
        return max(1.0 - rate * (1.0 - rate) * self.distance**2, LEAST_WITHIN)


@dataclass(frozen=True)
class TwoValues:
    """An outcome of two values, in a loss that saturates.

    Such a regression does not tend to the mean: for a share mu of the higher value it is the m, in
    widths above the lower one, with ``(1 - mu)(1 - exp(-m/c)) = mu (1 - exp(-(1 - m)/c))``, c the
    slope in widths. Methods take and return regressions in units of the outcome.

    Parameters
    ----------
    low
        The lower value less the center of the outcome, in its units.
    width
        The higher value less the lower one, in units of the outcome.
    slope
        Slope of the loss, in units of the outcome.
    """

    low: float
    width: float
    slope: float

    def unbent(self, m: Array | float) -> Array:
        """The mean outcomes (n,) at which a regression is m (n,), in closed form."""
        place = np.clip((np.asarray(m) - self.low) / self.width, 0.0, 1.0)
        c = self.slope / self.width
        below = -special.expm1(-place / c)
        above = -special.expm1(-(1.0 - place) / c)
        mean_share = below / (below + above)
        return np.asarray(self.low + self.width * mean_share)

    def bent(self, mean: float) -> float:
        """The regression of outcomes of this mean."""

        def reaches(m: float) -> bool:
            return float(self.unbent(m)) >= mean

        return bracketed(reaches, self.low + self.width, self.low)

    def curvature(self, m: float) -> float:
        """The mean curvature of the loss where the regression is m."""
        place = self._place(m)
        c = self.slope / self.width
        mean_share = (float(self.unbent(m)) - self.low) / self.width
        at_low = math.exp(-place / c)
        at_high = math.exp(-(1.0 - place) / c)
        return (1.0 - mean_share) * at_low + mean_share * at_high

    def steepness(self, m: float) -> float:
        """The derivative of :meth:`unbent`."""
        place = self._place(m)
        c = self.slope / self.width
        minus_both = math.expm1(-place / c) + math.expm1(-(1.0 - place) / c)
        return self.curvature(m) / (c * -minus_both)

    def _place(self, m: float) -> float:
        """Where a regression lies between both values: from 0 to 1."""
        return min(max((m - self.low) / self.width, 0.0), 1.0)


class StretchedErrors(NamedTuple):
    """What is wrong with slopes (g, k) once the shrinkage that is predicted of them is undone.

    Parameters
    ----------
    shrunk
        k: parts of slopes that the ridge takes.
    noise
        f v: standard deviations of their noise, in units of the outcome per standard deviation of a
        covariate.
    missing
        1 - f (1 - k): parts of slopes that are missing still.
    """

    shrunk: Array
    noise: Array
    missing: Array


@dataclass(frozen=True)
class RidgeFit:
    """A calibrated outcome regression, as far as it says what becomes of a slope.

    Parameters
    ----------
    gamma
        Its ridge.
    noise
        Standard deviation of the noise of a slope, in units of n times the gradient.
    n_samples
        n, the number of records.
    slope
        The c of its saturating loss, in units of the outcome; None for squared loss.
    scale
        What it multiplies covariates by.
    arms
        What records of an arm count.
    rows
        Whether slopes are in common or by arm.
    mass
        What the n records count on average.
    curvatures
        Mean curvatures of the loss in the untreated and the treated arm, where they do not follow
        from normal residuals.
    noise_ratio
        The noise of a slope over the spread of effects, which the weights of the arms follow.
    """

    gamma: float
    noise: float
    n_samples: float
    slope: float | None
    scale: float
    arms: Arms
    rows: Rows
    mass: float = 1.0
    curvatures: tuple[float, float] | None = None
    noise_ratio: float = 0.0

    @classmethod
    def of(cls, step: Any) -> RidgeFit:
        """Fit of a calibrated regression, of records that count what is guessed of them."""
        made = step.map
        first_slope = 1 if made.rows in (Rows.POOLED, Rows.ARMS) else made.n_arms
        return cls(
            gamma=step.calibration.gamma,
            noise=math.sqrt(float(step.calibration.variances[first_slope])),
            n_samples=step.universe.n_samples,
            slope=getattr(step.program, "slope", None),
            scale=made.scale,
            arms=made.arms,
            rows=made.rows,
            mass=step.universe.mass,
            noise_ratio=made.noise_ratio,
        )

    def weights(self, rate: float) -> Array:
        """Weights of an untreated and a treated record (2,)."""
        return np.array(self.arms.weights(rate, self.noise_ratio))

    def leaning(self, rate: float, wanted: float) -> float:
        """How far the share of the treated in common slopes is from the ``wanted`` one: (A23).

        At the wanted share effects that vary leave no bias. Slopes by arm do not lean.
        """
        if self.rows is not Rows.COMMON:
            return 0.0
        parts = np.array([1.0 - rate, rate]) * self.weights(rate)
        return abs(float(parts[1] / np.sum(parts)) - wanted)

    def curvature(self, deviation: float, rate: Rate) -> Array:
        """What every arm (K,) adds to the curvature of the mean loss: equation (A5).

        Parameters
        ----------
        deviation
            Standard deviation of normal residuals, in units of the outcome. It counts where
            ``curvatures`` are not known.
        rate
            The rate of treatment, or those of more than two arms.

        Returns
        -------
        Array
            Of two arms that of the untreated stands first.
        """
        bends = self.curvatures
        if bends is None:
            bend = self._bend(deviation)
            bends = (bend, bend)
        if isinstance(rate, tuple):
            return np.array(rate) * (self.mass * bends[0])
        counts = np.array([1.0 - rate, rate]) * self.weights(rate)
        return np.asarray(self.mass * counts * np.array(bends))

    def _bend(self, deviation: float) -> float:
        """Mean curvature of the loss at normal residuals of this standard deviation."""
        if self.slope is None:
            return 2.0
        return float(special.erfcx(deviation / (math.sqrt(2.0) * self.slope)))

    def errors(
        self,
        spreads: Array,
        deviation: float,
        rate: Rate,
        part: float = 1.0,
        least_share: float = 1.0,
    ) -> tuple[Array, Array]:
        """What ridge and noise do to slopes: equation (A6).

        Parameters
        ----------
        spreads
            Standard deviations (k,) of the covariates.
        deviation
            Standard deviation of residuals, in units of the outcome.
        rate
            The rate of treatment, or those of more than two arms.
        part
            Share of the variance of the records that tells of the slopes.
        least_share
            Variance of their direction, as a share of that among independent covariates.

        Returns
        -------
        tuple
            Parts (g, k) of slopes that gamma shrinks away, and standard deviations (g, k) of their
            noise in units of the outcome per standard deviation of a covariate. Slopes of every
            arm are g = K, the untreated first; slopes in common are g = 1.
        """
        size = self.scale * spreads * math.sqrt(least_share)
        curvature = self.curvature(deviation, rate)[:, None]
        if self.rows is not Rows.ARMS:
            curvature = np.sum(curvature, axis=0, keepdims=True)
        total = curvature * part * size**2 + self.gamma
        return self.gamma / total, self.noise * size / (self.n_samples * total)

    def stretched_errors(
        self, spreads: Array, deviation: float, rate: Rate, part: float
    ) -> StretchedErrors:
        """What is wrong with slopes that are stretched by what is predicted of them: (A7), (A9).

        Parameters
        ----------
        spreads
            Standard deviations (k,) of the covariates.
        deviation
            Standard deviation of residuals, in units of the outcome.
        rate
            The rate of treatment, or those of more than two arms.
        part
            Share of the variance of the records that tells of the slopes.
        """
        shrunk, noise = self.errors(spreads, deviation, rate, part)
        stretch = stretch_of(shrunk)
        return StretchedErrors(shrunk, noise * stretch, 1.0 - stretch * (1.0 - shrunk))


def stretch_of(shrunk: Array) -> Array:
    """Factors of released slopes of which the ridge takes the parts ``shrunk``: equation (A7)."""
    return np.asarray(np.minimum(1.0 / np.maximum(1.0 - shrunk, 1e-9), STRETCH))


def levels_apart(term: Term, mean: CovariateMean, released: Mapping[str, Array]) -> Term:
    """The regression without what the slopes of all levels of a column have in common.

    Where every record has a level, as of bins or where "other" is one, they add up to next to a
    constant, once the ``mean`` is subtracted: that part is noise alone, which the noise of a mean
    covariate would be multiplied by. Where some have none it may be what sets them apart, however
    few they are, and confounds.
    """
    columns = np.array(mean.law.columns)
    theta = term.coefficient(len(columns), released)
    places = ~term.rows.constants(len(columns), term.n_arms)
    slopes = theta[places].reshape(-1, len(columns))
    for number in mean.law.complete:
        own = columns == number
        slopes[:, own] -= np.mean(slopes[:, own], axis=1, keepdims=True)
    theta[places] = slopes.ravel()
    return replace(term, source=tuple(theta.tolist()))


#: m_0, m_1 and e (n,) before they are clipped, and the effect (n,) by a released rule, if any.
Predicted = tuple[Array, Array, Array, Array | None]


class Nuisances(abc.ABC):
    """m_0, m_1 and e at covariates x (n, k), given what was released.

    Each of them is a function of its own record.
    """

    #: The two values of the outcome, where it is declared to have no others.
    two_values: TwoValues | None = None

    @abc.abstractmethod
    def planned(self, earlier: Mapping[str, Any]) -> Nuisances:
        """Nuisances once the steps that they rest on are planned, by name."""

    @abc.abstractmethod
    def worked_out(self, released: Mapping[str, Array], n_samples: int) -> Nuisances:
        """Nuisances with what follows from n and ``released`` alone: a block does not know n."""

    @abc.abstractmethod
    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        """All of them, each evaluated once.

        Regressions of the centered outcome may be infinite or nan.
        """


@dataclass(frozen=True)
class LinearNuisances(Nuisances):
    """A linear regression of the outcome, and a logistic, constant or known propensity.

    The slopes of the regression are divided by what its ridge is predicted to leave of them, at
    most ``STRETCH`` times. Regressions of an outcome of two values are unbent, record by record.

    Parameters
    ----------
    term
        The outcome regression.
    rate
        The public probability of treatment, or the step that released the number of treated
        records.
    log_odds
        The regression of a propensity on (1, x); None where the rate is that of everybody.
    spreads
        Standard deviations (k,) of the mapped covariates, public or of a released mean square.
    deviation
        Public standard deviation of residuals, in units of the outcome.
    declared
        Distance of the arms, collinearity and heterogeneity.
    calibrated
        The fit of the regression, once it is planned.
    square
        The step that releases the mean square of the covariates; None for none, and once the
        spreads are worked out.
    two_values
        Both values of an outcome that has no others.
    shares
        Probabilities of all of more than two arms, once they are known.
    """

    term: Term
    rate: Any
    log_odds: Term | None = None
    spreads: tuple[float, ...] = ()
    deviation: float = 1.0
    declared: Confounding = Confounding()
    calibrated: RidgeFit | None = None
    square: MeanSquare | None = None
    two_values: TwoValues | None = None
    shares: tuple[float, ...] = ()

    @property
    def fit(self) -> RidgeFit:
        """The regression as it is calibrated. There is none before it is planned."""
        assert self.calibrated is not None
        return self.calibrated

    def planned(self, earlier: Mapping[str, Any]) -> Self:
        fit = RidgeFit.of(earlier[str(self.term.source)])
        return replace(self, calibrated=fit, square=earlier.get("spread"))

    def rates(
        self, released: Mapping[str, Array], n_samples: int
    ) -> tuple[dict[str, Any], float | None]:
        """Fields that follow from released rates, and the mass of a record.

        The mass is None where it is as guessed.
        """
        if not isinstance(self.rate, str):
            return {}, None
        sums = released[self.rate]
        known = {"rate": treated_share(sums, n_samples)}
        if len(sums) == 1:
            return known, None
        return known, max(released_mass(sums), 1.0) / n_samples

    def worked_out(self, released: Mapping[str, Array], n_samples: int) -> Self:
        known, mass = self.rates(released, n_samples)
        fixed = replace(self, **known)
        if mass is not None and self.calibrated is not None:
            fixed = replace(fixed, calibrated=replace(self.calibrated, mass=mass))
        if self.square is not None:
            spreads = self.square.spreads(released)
            fixed = replace(fixed, spreads=tuple(spreads.tolist()), square=None)
        if self.calibrated is None:
            return fixed
        if self.two_values is not None:
            untreated, treated = fixed.levels(released)
            curvatures = (
                self.two_values.curvature(float(untreated[0])),
                self.two_values.curvature(float(treated[0])),
            )
            fixed = replace(fixed, calibrated=replace(fixed.fit, curvatures=curvatures))
        stretch = tuple(fixed.stretch.ravel().tolist())
        return replace(fixed, term=replace(fixed.term, stretch=stretch))

    def levels(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """The regressions m_0 and m_1 (1,) where all covariates are 0, before they are unbent."""
        nowhere = np.zeros((1, len(self.spreads)))
        m_0 = self._line(nowhere, np.zeros(1), released)
        m_1 = self._line(nowhere, np.ones(1), released)
        return m_0, m_1

    def coefficients(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """Intercepts (m,) and slopes (g, k) as they were released, before any shrinkage is undone.

        There is an intercept for every arm, or one for all records; slopes are those of every arm,
        or g = 1 where they are in common.
        """
        k = len(self.spreads)
        theta = replace(self.term, stretch=None).coefficient(k, released)
        constant = self.term.rows.constants(k, self.term.n_arms)
        return theta[constant], theta[~constant].reshape(-1, k)

    def shrinkage(
        self, deviation: float, least_share: float = 1.0, within: float | None = None
    ) -> tuple[Array, Array]:
        """Effect of ridge and noise on slopes (g, k), once the rate is a number.

        Parameters
        ----------
        deviation
            Standard deviation of residuals, in units of the outcome.
        least_share
            Variance of a direction, as a share of that among independent covariates.
        within
            Share of the variance that lies within the arms; None: that of the declared distance.

        Returns
        -------
        tuple
            That of :meth:`RidgeFit.errors`.
        """
        rate = self.shares or self.rate
        if within is None:
            within = self.declared.within(rate)
        return self.fit.errors(np.array(self.spreads), deviation, rate, within, least_share)

    @property
    def stretch(self) -> Array:
        """Factors of released slopes (g, k): equation (A7)."""
        return stretch_of(self.shrinkage(self.deviation)[0])

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        m_0 = self.outcome(x, np.zeros(len(x)), released)
        m_1 = self.outcome(x, np.ones(len(x)), released)
        return m_0, m_1, self.propensity(x, released), None

    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        """The regression m_a(x), (n,), of the centered outcome."""
        line = self._line(x, a, released)
        return line if self.two_values is None else self.two_values.unbent(line)

    def _line(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return self.term.predict(x, a, released)

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        """P(A = 1 | x), (n,), before it is clipped."""
        if self.log_odds is not None:
            return np.asarray(expit(self.log_odds.predict(x, np.zeros(len(x)), released)))
        if isinstance(self.rate, str):
            raise ValueError("the rate of treatment is among all records: ask what is given first")
        return np.full(len(x), self.rate)


@dataclass(frozen=True)
class ArmNuisances(LinearNuisances):
    """Regressions by arm or with slopes in common, of K > 2 arms.

    ``shares`` are the probabilities of all arms: public, or, once they are known, those that the
    step ``rate`` released. ``log_odds`` is a multinomial regression, with a coefficient for every
    arm.
    """

    def rates(
        self, released: Mapping[str, Array], n_samples: int
    ) -> tuple[dict[str, Any], float | None]:
        known: dict[str, Any] = {}
        odds = self.log_odds
        if odds is not None and isinstance(odds.source, str):
            # the step releases contrasts; a coefficient for every arm predicts alike
            parts = np.reshape(released[odds.source], (odds.n_arms - 1, -1))
            theta = (contrasts(odds.n_arms) @ parts).ravel()
            known["log_odds"] = replace(odds, source=tuple(theta.tolist()))
        mean = None if self.square is None else self.square.mean
        if mean is not None and mean.subtracted:
            known["term"] = levels_apart(self.term, mean, released)
        if not isinstance(self.rate, str):
            return known, None
        sums = released[self.rate]
        known["rate"] = 1.0 / len(sums)
        known["shares"] = _arm_shares(sums)
        return known, max(released_mass(sums, len(sums)), 1.0) / n_samples

    def own(self, x: Array, a: NDArray[np.int64], released: Mapping[str, Array]) -> Array:
        """P(A = a | x), (n,), of the record's own arm of several, before it is clipped."""
        if self.log_odds is None:
            return np.array(self.shares)[a]
        logits = [
            self.log_odds.predict(x, np.full(len(x), arm), released)
            for arm in range(len(self.shares))
        ]
        apart = np.clip(np.array(logits) - np.choose(a, logits), -500.0, 500.0)
        # one scalar function for all of them: exp of a vector may round a row by where it stands
        odds = expit(apart) / expit(-apart)
        return np.asarray(1.0 / np.sum(odds, axis=0))


def _arm_shares(sums: Array) -> tuple[float, ...]:
    """Released shares of all arms (K,), none so small that what divides by it is unbounded."""
    counts = np.maximum(np.asarray(sums, dtype=np.float64), 0.0)
    total = float(counts.sum())
    shares = np.full(len(counts), 1.0 / len(counts))
    if total > 0.0:
        shares = counts / total
    return tuple(np.maximum(shares, 1.0 / RAREST).tolist())


def rare(shares: Array, deviation: float = 0.0) -> NDArray[np.bool_]:
    """Where released shares of arms may be below what scores divide by.

    Whatever the mean outcome of such an arm may be then has to be covered.

    Parameters
    ----------
    shares
        Released shares (K,) of the arms.
    deviation
        Standard deviation of their noise, of which three are counted.
    """
    return np.asarray(shares <= 1.0 / RAREST + 3.0 * deviation)


@dataclass(frozen=True)
class RuleNuisances(LinearNuisances):
    """Regressions by arm with slopes of their own, and the propensity by side of a released rule.

    Where the propensity is not public, ``rate`` names the step that released the counts by side and
    arm; once they are known it is the treated share of all. Then the gain over treating nobody is
    off by ``P_d ((1 - pi_d) db_1 + pi_d db_0)'Delta_d``, db_a what is wrong with the slopes of arm
    a: no difference between the sides enters.

    Parameters
    ----------
    rule
        Name of the step that releases the rule.
    counts
        The step that releases the counts by side and arm, once it is planned.
    by_side
        Treated shares where the rule does not treat and where it does, once they are known.
    """

    rule: str = "rule"
    counts: SideCounts | None = None
    by_side: tuple[float, float] | None = None

    def planned(self, earlier: Mapping[str, Any]) -> Self:
        return replace(super().planned(earlier), counts=earlier.get("sides"))

    def rates(
        self, released: Mapping[str, Array], n_samples: int
    ) -> tuple[dict[str, Any], float | None]:
        if self.counts is None:
            return super().rates(released, n_samples)
        shares = self.counts.shares(released)
        known: dict[str, Any] = {}
        if isinstance(self.rate, str):
            rate = _treated(shares.sum(axis=0), 0.5, 0.0)
            # counts that are hardly more than their noise say nothing of their side
            noise = 2.0 * math.sqrt(self.counts.predicted_error) / n_samples
            by_side = tuple(_treated(side, rate, noise) for side in shares)
            known = {"rate": rate, "by_side": by_side}
        return known, min(max(float(shares.sum()), 1.0 / n_samples), 1.0)

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        m_0, m_1, e, _ = super().at(x, released)
        effect = Rows.POOLED.predict(released[self.rule], x, 0.0)
        if self.by_side is not None:
            untreated_side, treated_side = self.by_side
            e = np.where(effect > 0.0, treated_side, untreated_side)
        return m_0, m_1, e, effect


def _treated(shares: Array, otherwise: float, weight: float) -> float:
    """The treated part of two shares (2,), between 1/RAREST and 1 less that.

    It is drawn to ``otherwise`` as by a further share of this ``weight``.
    """
    untreated = float(shares[0])
    treated = float(shares[1])
    total = untreated + treated + weight
    rate = otherwise
    if total > 0.0:
        rate = (treated + weight * otherwise) / total
    return min(max(rate, 1.0 / RAREST), 1.0 - 1.0 / RAREST)
