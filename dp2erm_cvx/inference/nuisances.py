"""What released nuisances leave of a confounding: the parts that all allowances are made of.

An interval of an effect allows for the errors of the regressions that it rests on, to first
order. Numbers such as (A6) are those of the equations on the page "Allowances of an interval",
``docs/theory/allowances.md``, which has them in the same order. All of it follows from released
and public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration.base import bracketed
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.steps.covariates import CovariateLaw, CovariateMean, DifferenceSquare, MeanSquare
from dp2erm_cvx.steps.nuisances import LEFT, Confounding, LinearNuisances, TwoValues
from dp2erm_cvx.steps.score import EffectScore, Released
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import TreatmentRate

#: What the squared sampling error of a regression is multiplied by, as residuals are heavier than
#: normal ones. Chosen; coverage with it is measured by ``docs/experiments/intervals.py``.
HEAVIER = 1.15
#: The least part of a slope that ridge is taken to leave when the size of the slope is estimated.
LEAST_PART = 0.02
#: The least curvature that anything is divided by.
LEAST_CURVATURE = 1e-12
#: The least norm or distance that anything is divided by.
TINY = 1e-300
#: Variances of a direction, from the least that is declared to 1, at which slopes are looked at.
SHARES = 9


@dataclass(frozen=True)
class NuisanceError:
    """Errors that the released nuisances add to an effect, in units of the outcome.

    Parameters
    ----------
    bias
        Bound on what shrinkage and slopes in common leave of the confounding.
    noise
        Standard deviation that the privacy noise of the nuisances adds.
    sampling
        Standard deviation that the sampling error of the regression adds.
    shift
        What the estimate is corrected by.
    """

    bias: float
    noise: float
    sampling: float
    shift: float = 0.0


#: Nothing beside noise and sampling of the score.
NO_ERROR = NuisanceError(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Residuals:
    """What is public of the residuals that a score clips.

    Parameters
    ----------
    bound
        M_r, to which residuals are clipped, in units of the outcome.
    scale
        Guess of their standard deviation, in units of the outcome.
    outcome_bound
        M', the bound on the centered outcome, in its units.
    of_persons
        True where persons are units, whose mean may vary by any part of what their records do.
    """

    bound: float
    scale: float
    outcome_bound: float
    of_persons: bool

    def deviation(self, clipped: float) -> float:
        """The standard deviation of residuals before they are clipped: equation (A2).

        Parameters
        ----------
        clipped
            Their standard deviation once clipped, in units of the outcome.

        Returns
        -------
        float
            At most half of the outcome bound; of persons' means at least the guessed scale.
        """
        residual = residual_deviation(clipped, self.bound, 0.5 * self.outcome_bound)
        return max(residual, self.scale) if self.of_persons else residual


@dataclass(frozen=True)
class EffectFacts:
    """What is public of an effect before anything is released.

    Errors of its nuisances follow from this and from the released numbers.

    Parameters
    ----------
    universe
        The datasets that the guarantee is about: number of records, bounds of covariates and
        outcome.
    estimand
        What is estimated, such as "ate".
    score
        The planned step that answers, which knows its nuisances once these are released.
    kind
        Class of the score of the estimand, whatever step answers.
    rate
        The planned step that releases the share of the treated; None where it is public.
    mean
        The planned step that releases the mean of the covariates; None for none.
    spread
        The planned step that releases the mean square of the covariates; None for none.
    along
        The planned step that releases their mean square along the difference of two arms; None
        for none.
    propensity
        The planned step that releases the log odds of treatment; None for none.
    average
        The planned step that releases the mean which regressions by arm are averaged at; None for
        none.
    law
        What is guessed of the covariates.
    assumed
        Distance of the arms, collinearity and heterogeneity, as declared or by default.
    known_propensity
        True where the probability of treatment is public, so that nothing is confounded.
    residuals
        Bound and guess of the residuals of the outcome regression.
    two_values
        Both values of an outcome that has no others.
    """

    universe: Universe
    estimand: str
    score: Any
    kind: type[EffectScore]
    rate: TreatmentRate | None
    mean: CovariateMean | None
    spread: MeanSquare | None
    along: DifferenceSquare | None
    propensity: Step | None
    average: Step | None
    law: CovariateLaw
    assumed: Confounding
    known_propensity: bool
    residuals: Residuals
    two_values: TwoValues | None


class SlopeErrors(NamedTuple):
    """What becomes of the slopes of one regression, or of one by arm (g of them).

    Parameters
    ----------
    shrunk
        k (g, k): parts of slopes that the ridge takes at the declared scale of residuals.
    wrong
        k' (g, k): parts of slopes that may be wrong once the shrinkage is undone.
    noise
        v' (g, k): standard deviations of the noise of a slope, in units of the outcome per standard
        deviation of its covariate.
    """

    shrunk: Array
    wrong: Array
    noise: Array


def combined(*errors: NuisanceError) -> NuisanceError:
    """Error of a sum of two means, to which either error adds: equation (A29).

    Noises are independent. Shifts may cancel, and what is counted as a bias beside a shift has
    its size.
    """
    shift = math.fsum(one.shift for one in errors)
    beside_shifts = math.fsum(one.bias - abs(one.shift) for one in errors)
    return NuisanceError(
        bias=beside_shifts + abs(shift),
        noise=math.hypot(*(one.noise for one in errors)),
        sampling=math.hypot(*(one.sampling for one in errors)),
        shift=shift,
    )


def confounded(facts: EffectFacts, released: Released) -> tuple[Any, LinearNuisances] | None:
    """The score at what was released, and its regressions.

    Returns
    -------
    tuple or None
        None where no line leaves confounding: the propensity is public, or nothing is regressed.
    """
    score = facts.score.at(facts.score.universe, released)
    nuisances = score.nuisances
    if facts.known_propensity or not isinstance(nuisances, LinearNuisances):
        return None
    return score, nuisances


def clipped_square(deviation: float, bound: float) -> float:
    """Mean square of normal residuals once they are clipped: equation (A1).

    Parameters
    ----------
    deviation
        sigma, their standard deviation before they are clipped.
    bound
        M_r, in the same unit.
    """
    z = bound / deviation
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    tail = float(special.ndtr(-z))
    # (A1): sigma^2 (1 - 2 tail - 2 z density) + 2 M_r^2 tail
    within_bound = deviation**2 * (1.0 - 2.0 * tail - 2.0 * z * density)
    return within_bound + 2.0 * bound**2 * tail


def residual_deviation(deviation: float, bound: float, largest: float) -> float:
    """Standard deviation of normal residuals before they are clipped: equation (A2).

    Parameters
    ----------
    deviation
        Their standard deviation once clipped.
    bound
        M_r, in the same unit.
    largest
        What the answer is at most.
    """

    def reaches(sigma: float) -> bool:
        return clipped_square(sigma, bound) >= deviation**2

    return bracketed(reaches, largest, 1e-9 * largest)


def remaining(
    spread: MeanSquare | None,
    nuisances: Any,
    released: Released,
    residual: float,
    within: float | None = None,
) -> SlopeErrors:
    """Errors of slopes once their shrinkage is undone: equation (A9).

    Parameters
    ----------
    spread
        The planned step that releases the mean square of the covariates; None for none.
    nuisances
        The outcome regression at what was released.
    released
        Numbers by the names of the steps.
    residual
        Standard deviation of residuals, in units of the outcome.
    within
        Share of the variance of the covariates that lies within the arms; None: that of the
        declared distance, which slopes are stretched by.
    """
    stretch = nuisances.stretch
    shrunk = nuisances.shrinkage(nuisances.deviation)[0]
    # (A9): k (1/16 + d^2)^(1/2), what may be left of the shrinkage that was predicted
    wrong_parts = [np.hypot(LEFT, doubt(spread, released)) * shrunk]
    noises = []
    # Directions of independent covariates, and those of the least variance that is declared.
    for share in np.geomspace(nuisances.declared.least_share, 1.0, SHARES):
        # (A9): |1 - f (1 - k(sigma, lambda'))| and v(sigma, lambda')
        shrunk_there, noise = nuisances.shrinkage(residual, share, within)
        wrong_parts.append(np.abs(1.0 - stretch * (1.0 - shrunk_there)))
        noises.append(noise)
    return SlopeErrors(
        shrunk=shrunk,
        wrong=np.max(wrong_parts, axis=0),
        noise=stretch * np.max(noises, axis=0),
    )


def doubt(spread: MeanSquare | None, released: Released) -> Array:
    """By what part shrinkage may exceed its prediction, as mean squares are noisy: equation (A8).

    Parameters
    ----------
    spread
        The planned step that releases the mean square of the covariates; None for none.
    released
        Numbers by the names of the steps.

    Returns
    -------
    Array
        One number for every covariate (k,), or one for all of them (1,).
    """
    if spread is None:
        return np.zeros(1)
    # (A8): d = e / (1 - .7 e)
    error = spread.relative_error(released)
    return error / (1.0 - 0.7 * error)


def slope_sizes(
    nuisances: LinearNuisances,
    slopes: Array,
    shrunk: Array,
    most: float,
    factors: ArrayLike = 1.0,
) -> Array:
    """Sizes of slopes before they were shrunk: equation (A10).

    Parameters
    ----------
    nuisances
        The outcome regression at what was released, with the spreads of the covariates.
    slopes
        The slopes (g, k) as they were released.
    shrunk
        Parts (g, k) of them that the ridge takes.
    most
        Bound on the norm of the slopes of one regression, in units of the outcome.
    factors
        What the slopes of a regression are multiplied by: (g,), or one number for all.

    Returns
    -------
    Array
        Sizes (g, k) per standard deviation of a covariate, in units of the outcome.
    """
    # (A10): beta_j = theta_j u_j / max(1 - k_j, 1/50), times the factor of its regression
    sizes: Array = slopes * np.array(nuisances.spreads) / np.maximum(1.0 - shrunk, LEAST_PART)
    sizes = sizes * np.reshape(factors, (-1, 1))
    # (A10): scaled down to |beta| <= M' / 2
    norms = np.maximum(np.linalg.norm(sizes, axis=1), TINY)
    sizes *= np.minimum(1.0, most / norms)[:, None]
    return sizes


def steepness_by_arm(nuisances: LinearNuisances, released: Released) -> Array:
    """U'_a, what unbending multiplies the slopes of either arm by (2,); 1 of other outcomes."""
    values = nuisances.two_values
    if values is None:
        return np.ones(2)
    levels = nuisances.levels(released)
    return np.array([values.steepness(float(level[0])) for level in levels])


def propensity_error(step: Step, squares: Array, variance: float) -> tuple[float, float]:
    """What ridge and noise do to the log odds of treatment: equation (A12).

    Parameters
    ----------
    step
        The planned step that releases the log odds.
    squares
        Mean squares of uncorrelated combinations of the covariates.
    variance
        Variance of the treatment that determines the log odds.

    Returns
    -------
    tuple
        k_e, the part of a log odds that gamma shrinks away; v_e, the standard deviation of the
        noise of one, per standard deviation of a covariate.
    """
    gamma = step.calibration.gamma
    noise_variance = float(step.calibration.variances[-1])
    mass = step.universe.mass
    n = step.universe.n_samples
    # (A12): k_e = gamma_e / (tau c mean(q) + gamma_e)
    ridge = gamma / (variance * float(np.mean(squares)) * mass + gamma)
    # (A12): v_e^2 = mean of s_e^2 q_i / (n (tau c q_i + gamma_e))^2
    curvatures = variance * squares * mass + gamma
    noise = noise_variance * np.mean(squares / (n * curvatures) ** 2)
    return ridge, math.sqrt(float(noise))
