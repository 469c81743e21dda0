"""delta(epsilon) of two output laws by sampling one of them, with confidence bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from dp2erm_cvx.audit.density.ascent import NOWHERE, Peak
from dp2erm_cvx.audit.density.law import ReleaseLaw, log_ratio, regular
from dp2erm_cvx.domain import Array


@dataclass(frozen=True)
class HockeyStick:
    """``delta(epsilon) = E[(1 - exp(epsilon - L))_+]``, L the log density ratio at an output of one law.

    ``estimate`` is the mean over ``draws``; delta(epsilon) of (theta, multiplier) is between ``low`` and
    ``high``, and that of theta alone at least ``theta_low``, all at once with probability at least
    ``confidence``. The errors of the densities are allowed for.
    """

    estimate: float
    low: float
    high: float
    theta_low: float
    confidence: float
    draws: int


@dataclass(frozen=True, eq=False)
class LossSample:
    """Log ratios at outputs of one law (draws,), bounds on their errors, and which outputs are regular."""

    ratio: Array
    error: Array
    regular: Array
    peak: Peak
    theta_peak: Peak


def sampled_losses(one: ReleaseLaw, other: ReleaseLaw, draws: int, rng: np.random.Generator) -> LossSample:
    """Outputs of ``one``, and the log of its density over that of ``other`` there."""
    outputs = [one.draw(rng) for _ in range(draws)]
    ratio = np.array([log_ratio(one, other, drawn) for drawn in outputs])
    error = np.array([one.error(drawn) + other.error(drawn) for drawn in outputs])
    inside = np.array([regular(drawn) for drawn in outputs], dtype=np.float64)
    within = np.where(inside > 0, ratio, -np.inf)
    best, best_inside = int(np.argmax(ratio)), int(np.argmax(within))
    peak = Peak(float(ratio[best]), float(error[best]), outputs[best])
    theta_peak = Peak(float(within[best_inside]), float(error[best_inside]), outputs[best_inside])
    return LossSample(ratio, error, inside, peak, theta_peak if inside.any() else NOWHERE)


def hockey_stick(found: LossSample, epsilon: float, confidence: float) -> HockeyStick:
    """Confidence bounds from one sample, each at a quarter of what ``confidence`` leaves."""
    risk = (1.0 - confidence) / 4
    upper, lower = excess(found.ratio + found.error, epsilon), excess(found.ratio - found.error, epsilon)
    exceeding = int(np.sum(found.ratio + found.error > epsilon))
    high = min(bernstein(upper, risk, 1), largest_probability(exceeding, len(upper), risk))
    return HockeyStick(
        estimate=float(np.mean(excess(found.ratio, epsilon))),
        low=max(bernstein(lower, risk, -1), 0.0),
        high=min(high, 1.0),
        theta_low=max(bernstein(lower * found.regular, risk, -1), 0.0),
        confidence=confidence,
        draws=len(upper),
    )


def larger(one: HockeyStick, other: HockeyStick) -> HockeyStick:
    """The larger of two directions; whatever is wrong with either has its share of the risk."""
    names = ("estimate", "low", "high", "theta_low")
    most = {name: max(getattr(one, name), getattr(other, name)) for name in names}
    return replace(one, **most, confidence=one.confidence + other.confidence - 1.0)


def excess(ratio: Array, epsilon: float) -> Array:
    """``(1 - exp(epsilon - L))_+``, elementwise."""
    return -np.expm1(np.minimum(epsilon - ratio, 0.0))


def bernstein(values: Array, risk: float, side: int) -> float:
    """One-sided bound on the mean of variables in [0, 1], wrong with probability at most ``risk``.

    Maurer & Pontil (2009), Theorem 4; ``side`` is 1 for an upper and -1 for a lower bound.
    """
    n = len(values)
    log = math.log(2.0 / risk)
    spread = math.sqrt(2.0 * float(np.var(values, ddof=1)) * log / n) + 7.0 * log / (3.0 * (n - 1))
    return float(np.mean(values)) + side * spread


def largest_probability(count: int, n: int, risk: float) -> float:
    """Upper Clopper-Pearson bound on a probability of which ``count`` of ``n`` trials were hits."""
    return 1.0 if count >= n else float(stats.beta.ppf(1.0 - risk, count + 1, n - count))
