"""What ridge and noise of a released regression leave of its slopes: predicted from public numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from dp2erm_cvx.calibration import Calibration
from dp2erm_cvx.calibration.sums import bracketed
from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.record_map import Arms, Rows
from dp2erm_cvx.steps.step import Planned

#: The curvature of a logistic regression, e (1 - e), of a propensity that nothing is known about.
VARIANCE = 0.2
#: The heterogeneity that is planned for, of the most that is declared: balancing the arms for all of it costs
#: more noise in slopes than it saves of bias where effects vary less. Intervals count all of it.
TYPICAL = 0.5
#: Part of the shrinkage that is taken to be left after it was undone: what its curvature may be off by.
LEFT = 0.25


@dataclass(frozen=True)
class Confounding:
    """What is declared about the treatment and the covariates, for predictions of bias.

    Parameters
    ----------
    distance
        D: how far the means of the two arms lie apart, in pooled standard deviations of the combination of
        covariates in which they differ most.
    least_share
        lambda: the least variance of a combination of standardized covariates, as a share of that of
        independent ones; 1 for covariates without collinearity.
    heterogeneity
        The standard deviation of effects given the covariates, in that of residuals.
    """

    distance: float = 1.0
    least_share: float = 1.0
    heterogeneity: float = 0.25

    @property
    def typical(self) -> float:
        """The heterogeneity that settings are chosen for; what is declared is the most that there is."""
        return TYPICAL * self.heterogeneity

    def within(self, rate: float) -> float:
        """The share of the variance along the difference of the arms that lies within them."""
        return max(1.0 - rate * (1.0 - rate) * self.distance**2, 0.2)


@dataclass(frozen=True)
class TwoValues:
    """An outcome of two values, ``low`` and ``low + width`` from its center, in a loss of this ``slope``.

    Such a regression does not tend to the mean: for a share mu of the higher value it is the m, in widths
    above the lower one, with ``(1 - mu)(1 - exp(-m/c)) = mu (1 - exp(-(1 - m)/c))``, c the slope in widths.
    Below, regressions are in units of the outcome.
    """

    low: float
    width: float
    slope: float

    def unbent(self, m: Array | float) -> Array:
        """The mean outcomes (n,) at which a regression is m (n,), in closed form."""
        share, c = np.clip((np.asarray(m) - self.low) / self.width, 0.0, 1.0), self.slope / self.width
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

    ``gamma`` is its ridge, ``noise`` the standard deviation of the noise of a slope, in units of n times the
    gradient, ``slope`` the c of its saturating loss, None for squared loss, ``scale`` what it multiplies
    covariates by; ``mass`` is what the n records count on average. ``curvatures`` are the mean curvatures of
    the loss in the untreated and the treated arm, where they do not follow from normal residuals.
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
    def of(cls, step: Planned) -> RidgeFit:
        """That of a calibrated step, of records that count what is guessed of them."""
        made = step.regression
        assert made is not None
        assert isinstance(step.declared, Fit)
        assert isinstance(step.calibration, Calibration)
        first = 1 if made.rows in (Rows.POOLED, Rows.ARMS) else 2
        noise = math.sqrt(float(step.calibration.variances[first]))
        slope = getattr(step.declared.program, "slope", None)
        n, mass = step.universe.n_samples, step.universe.mass
        gamma, ratio = step.calibration.gamma, made.noise_ratio
        return cls(gamma, noise, n, slope, made.scale, made.arms, made.rows, mass, noise_ratio=ratio)

    def weights(self, rate: float) -> Array:
        """What an untreated and a treated record count (2,)."""
        return np.array(self.arms.weights(rate, self.noise_ratio))

    def leaning(self, rate: float, wanted: float) -> float:
        """How far the share of the treated in common slopes is from the one that no varying effect biases."""
        if self.rows is not Rows.COMMON:
            return 0.0
        parts = np.array([1.0 - rate, rate]) * self.weights(rate)
        return abs(float(parts[1] / np.sum(parts)) - wanted)

    def bends(self, deviation: float) -> tuple[float, float]:
        """The mean curvature of the loss by arm; at normal residuals of this ``deviation`` if not known."""
        if self.curvatures is not None:
            return self.curvatures
        bend = 2.0 if self.slope is None else float(special.erfcx(deviation / (math.sqrt(2.0) * self.slope)))
        return bend, bend

    def curvature(self, deviation: float, rate: float) -> Array:
        """What records of either arm (2,) add to the curvature of the mean loss, the untreated first."""
        parts = np.array([1.0 - rate, rate]) * self.weights(rate)
        found: Array = self.mass * parts * np.array(self.bends(deviation))
        return found

    def errors(
        self, spreads: Array, deviation: float, rate: float, part: float = 1.0, least_share: float = 1.0
    ) -> tuple[Array, Array]:
        """The parts (g, k) of slopes that gamma shrinks away, and the standard deviations of their noise.

        In units of the outcome per standard deviation of a covariate, for covariates of these ``spreads`` and
        residuals of this ``deviation``: g = 2 slopes of either arm, the untreated first, or g = 1 where they
        are common. ``part`` is what of the records' variance tells of the slopes, ``least_share`` that of
        their direction among independent covariates.
        """
        size = self.scale * spreads * math.sqrt(least_share)
        curvature = self.curvature(deviation, rate)[:, None]
        if self.rows is not Rows.ARMS:
            curvature = np.sum(curvature, axis=0, keepdims=True)
        total = curvature * part * size**2 + self.gamma
        return self.gamma / total, self.noise * size / (self.n_samples * total)


def shrinkage(
    regressions: Sequence[RidgeFit],
    spreads: Array,
    deviation: float,
    rate: float,
    declared: Confounding,
    least_share: float = 1.0,
) -> tuple[Array, Array]:
    """The same, (g, k), for regressions of which each is fitted to what the earlier ones left.

    A refit shrinks what the first fit has left, its noise included.
    """
    kept, variance = np.ones((1, len(spreads))), np.zeros((1, len(spreads)))
    for one in regressions:
        own, noise = one.errors(spreads, deviation, rate, declared.within(rate), least_share)
        kept, variance = kept * own, variance * own**2 + noise**2
    return kept, np.sqrt(variance)
