"""Released nuisances at a record, and what ridge and noise leave of their slopes."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

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
        """The heterogeneity that settings are chosen for; what is declared is the most that there
        is.
        """
        return TYPICAL * self.heterogeneity

    def within(self, rate: Rate) -> float:
        """The share of the variance along the difference of the arms that lies within them."""
        if isinstance(rate, tuple):  # of K arms, of which no two are farther apart
            between = 0.5 * (1.0 - math.fsum(part * part for part in rate)) * self.distance**2
            return max(1.0 - between, LEAST_WITHIN)
        return max(1.0 - rate * (1.0 - rate) * self.distance**2, LEAST_WITHIN)


@dataclass(frozen=True)
class TwoValues:
    """An outcome of two values, ``low`` and ``low + width`` from its center, in a loss of this
    ``slope``.

    Such a regression does not tend to the mean: for a share mu of the higher value it is the m, in
    widths above the lower one, with ``(1 - mu)(1 - exp(-m/c)) = mu (1 - exp(-(1 - m)/c))``, c the
    slope in widths. Below, regressions are in units of the outcome.
    """

    low: float
    width: float
    slope: float

    def unbent(self, m: Array | float) -> Array:
        """The mean outcomes (n,) at which a regression is m (n,), in closed form."""
        share, c = (
            np.clip((np.asarray(m) - self.low) / self.width, 0.0, 1.0),
            self.slope / self.width,
        )
        below, above = -special.expm1(-share / c), -special.expm1(-(1.0 - share) / c)
        return np.asarray(self.low + self.width * (below / (below + above)))

    def bent(self, mean: float) -> float:
        """The regression of outcomes of this mean."""
        return bracketed(lambda m: float(self.unbent(m)) >= mean, self.low + self.width, self.low)

    def curvature(self, m: float) -> float:
        """The mean curvature of the loss where the regression is m."""
        share, c = min(max((m - self.low) / self.width, 0.0), 1.0), self.slope / self.width
        mean = (float(self.unbent(m)) - self.low) / self.width
        return (1.0 - mean) * math.exp(-share / c) + mean * math.exp(-(1.0 - share) / c)

    def steepness(self, m: float) -> float:
        """The derivative of :meth:`unbent`."""
        share, c = min(max((m - self.low) / self.width, 0.0), 1.0), self.slope / self.width
        return self.curvature(m) / (c * -(math.expm1(-share / c) + math.expm1(-(1.0 - share) / c)))


@dataclass(frozen=True)
class RidgeFit:
    """A calibrated outcome regression, as far as it says what becomes of a slope.

    ``gamma`` is its ridge, ``noise`` the standard deviation of the noise of a slope, in units of n
    times the gradient, ``slope`` the c of its saturating loss, None for squared loss, ``scale``
    what it multiplies covariates by; ``mass`` is what the n records count on average.
    ``curvatures`` are the mean curvatures of the loss in the untreated and the treated arm, where
    they do not follow from normal residuals.
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
        first = 1 if made.rows in (Rows.POOLED, Rows.ARMS) else made.n_arms
        noise = math.sqrt(float(step.calibration.variances[first]))
        gamma, slope = step.calibration.gamma, getattr(step.program, "slope", None)
        how = made.scale, made.arms, made.rows, step.universe.mass
        return cls(gamma, noise, step.universe.n_samples, slope, *how, noise_ratio=made.noise_ratio)

    def weights(self, rate: float) -> Array:
        """Weights of an untreated and a treated record (2,)."""
        return np.array(self.arms.weights(rate, self.noise_ratio))

    def leaning(self, rate: float, wanted: float) -> float:
        """How far the share of the treated in common slopes is from the one that no varying effect
        biases.
        """
        if self.rows is not Rows.COMMON:
            return 0.0
        parts = np.array([1.0 - rate, rate]) * self.weights(rate)
        return abs(float(parts[1] / np.sum(parts)) - wanted)

    def curvature(self, deviation: float, rate: Rate) -> Array:
        """Contributions of every arm (K,) to the curvature of the mean loss, of two the untreated
        first.

        At normal residuals of this ``deviation``, where ``curvatures`` are not known.
        """
        bend = (
            2.0
            if self.slope is None
            else float(special.erfcx(deviation / (math.sqrt(2.0) * self.slope)))
        )
        bends = self.curvatures or (bend, bend)
        if isinstance(rate, tuple):
            return np.array(rate) * (self.mass * bends[0])
        return np.asarray(
            self.mass * (np.array([1.0 - rate, rate]) * self.weights(rate)) * np.array(bends)
        )

    def errors(
        self,
        spreads: Array,
        deviation: float,
        rate: Rate,
        part: float = 1.0,
        least_share: float = 1.0,
    ) -> tuple[Array, Array]:
        """The parts (g, k) of slopes that gamma shrinks away, and the standard deviations of their
        noise.

        In units of the outcome per standard deviation of a covariate, for covariates of these
        ``spreads`` and residuals of this ``deviation``: g = K slopes of every arm, the untreated
        first, or g = 1 where they are common. ``part`` is what of the records' variance tells of
        the slopes, ``least_share`` that of their direction among independent covariates.
        """
        size = self.scale * spreads * math.sqrt(least_share)
        curvature = self.curvature(deviation, rate)[:, None]
        if self.rows is not Rows.ARMS:
            curvature = np.sum(curvature, axis=0, keepdims=True)
        total = curvature * part * size**2 + self.gamma
        return self.gamma / total, self.noise * size / (self.n_samples * total)


#: No slope is stretched more: what ridge leaves less of is noise.
STRETCH = 3.0


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
    """m_0, m_1 and e at covariates x (n, k), given what was released: each a function of its own
    record.
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
        """All of them, each evaluated once; regressions of the centered outcome may be infinite or
        nan.
        """


@dataclass(frozen=True)
class LinearNuisances(Nuisances):
    """A linear regression of the outcome, and a logistic, constant or known propensity.

    ``term`` is the outcome regression, ``calibrated`` its fit, once it is planned. ``rate`` is the
    public probability of treatment, or the step that released the number of treated records;
    ``log_odds`` is the regression of a propensity on (1, x), None where the rate is that of
    everybody. The slopes of the regression are divided by what its ridge is predicted to leave of
    them, at most ``STRETCH`` times, for covariates of the public ``spreads`` (k,), or those of a
    released mean square, and residuals of the public ``deviation``. Regressions of an outcome of
    ``two_values`` are unbent, record by record.
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
        """Fields that follow from released rates, and the mass of a record; None where it is as
        guessed.
        """
        if not isinstance(self.rate, str):
            return {}, None
        sums = released[self.rate]
        mass = max(released_mass(sums), 1.0) / n_samples if len(sums) > 1 else None
        return {"rate": treated_share(sums, n_samples)}, mass

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
            untreated, treated = (float(level[0]) for level in fixed.levels(released))
            curvatures = self.two_values.curvature(untreated), self.two_values.curvature(treated)
            fixed = replace(fixed, calibrated=replace(fixed.fit, curvatures=curvatures))
        stretch = tuple(fixed.stretch.ravel().tolist())
        return replace(fixed, term=replace(fixed.term, stretch=stretch))

    def levels(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """The regressions m_0 and m_1 (1,) where all covariates are 0, before they are unbent."""
        nowhere = np.zeros((1, len(self.spreads)))
        m_0, m_1 = (self._line(nowhere, arm * np.ones(1), released) for arm in (0.0, 1.0))
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
        """Effect of ridge and noise on slopes (g, k), once the rate is a number:
        :meth:`RidgeFit.errors`.

        ``within`` is the share of the variance that lies within the arms; None: that of the
        declared distance.
        """
        rate = self.shares or self.rate
        within = self.declared.within(rate) if within is None else within
        return self.fit.errors(np.array(self.spreads), deviation, rate, within, least_share)

    @property
    def stretch(self) -> Array:
        """Factors of released slopes (g, k)."""
        left = self.shrinkage(self.deviation)[0]
        return np.minimum(1.0 / np.maximum(1.0 - left, 1e-9), STRETCH)

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        m_0, m_1 = (self.outcome(x, arm * np.ones(len(x)), released) for arm in (0.0, 1.0))
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
        odds, known = self.log_odds, dict[str, Any]()
        if odds is not None and isinstance(odds.source, str):
            parts = np.reshape(released[odds.source], (odds.n_arms - 1, -1))
            theta = (contrasts(odds.n_arms) @ parts).ravel()
            known["log_odds"] = replace(odds, source=tuple(theta.tolist()))
        mean = None if self.square is None else self.square.mean
        if mean is not None and mean.subtracted:
            known["term"] = levels_apart(self.term, mean, released)
        if not isinstance(self.rate, str):
            return known, None
        sums = released[self.rate]
        counts = np.maximum(np.asarray(sums, dtype=np.float64), 0.0)
        total = float(counts.sum())
        shares = counts / total if total > 0.0 else np.full(len(counts), 1.0 / len(counts))
        # none so small that what divides by it is unbounded
        known |= {
            "rate": 1.0 / len(sums),
            "shares": tuple(np.maximum(shares, 1.0 / RAREST).tolist()),
        }
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
        # odds by one scalar function for all of them: that of a vector may round a row by where it
        # stands
        return np.asarray(1.0 / np.sum(expit(apart) / expit(-apart), axis=0))


def rare(shares: Array, deviation: float = 0.0) -> NDArray[np.bool_]:
    """Where released ``shares`` of arms, off by three of a ``deviation``, may be below what scores
    divide by.

    Whatever the mean outcome of such an arm may be then has to be covered.
    """
    return np.asarray(shares <= 1.0 / RAREST + 3.0 * deviation)


@dataclass(frozen=True)
class RuleNuisances(LinearNuisances):
    """Regressions by arm with slopes of their own, and the propensity by side of a released
    ``rule``.

    Where the propensity is not public, ``rate`` names the step that released the counts by side and
    arm; once they are known it is the treated share of all, and ``by_side`` are those where the
    rule does not treat and where it does. Then the gain over treating nobody is off by ``P_d ((1 -
    pi_d) db_1 + pi_d db_0)'Delta_d``, db_a what is wrong with the slopes of arm a: no difference
    between the sides enters.
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
        shares, known = self.counts.shares(released), dict[str, Any]()
        if isinstance(self.rate, str):
            rate = _treated(shares.sum(axis=0), 0.5, 0.0)
            # counts that are hardly more than their noise say nothing of their side
            noise = 2.0 * math.sqrt(self.counts.predicted_error) / n_samples
            known = {"rate": rate, "by_side": tuple(_treated(side, rate, noise) for side in shares)}
        return known, min(max(float(shares.sum()), 1.0 / n_samples), 1.0)

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        m_0, m_1, e, _ = super().at(x, released)
        effect = Rows.POOLED.predict(released[self.rule], x, 0.0)
        e = e if self.by_side is None else np.where(effect > 0.0, self.by_side[1], self.by_side[0])
        return m_0, m_1, e, effect


def _treated(shares: Array, otherwise: float, weight: float) -> float:
    """The treated part of two shares, drawn to ``otherwise`` as by ``weight`` more; at least
    1/RAREST.
    """
    untreated, treated = (float(share) for share in shares)
    total = untreated + treated + weight
    rate = (treated + weight * otherwise) / total if total > 0.0 else otherwise
    return min(max(rate, 1.0 / RAREST), 1.0 - 1.0 / RAREST)
