"""Noise on what is released itself: whole numbers, numbers on a grid, means, private quantiles."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dp2erm_cvx.arrays import ROUND_DOWN, Array
from dp2erm_cvx.calibration.base import MARGIN, Calibration, Noise, Objective, Perturbed, bracketed
from dp2erm_cvx.checks import one_of, public_number, whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

#: Released integers lie in [-LARGEST_INTEGER, LARGEST_INTEGER] before their noise: half of what 64
#: bits hold.
LARGEST_INTEGER = 2**62
_SMALLEST_DELTA = 1e-290

#: Relative accuracy asked of scaled complementary error functions, far above what they are computed
#: to.
_ROUNDING = 1e-13
_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class IntegerNoise:
    """Independent noise on every block of a vector of integers.

    ``GAMMA``: a block u has probability proportional to ``exp(-max_j |u_j| / scale)``, which is
    discrete Laplace noise for blocks of one integer. ``GAUSSIAN``: a normal variable of standard
    deviation ``scale`` on every integer, rounded.

    Parameters
    ----------
    sensitivity
        How far the vector moves between neighbors, at most: the sum over the blocks of the largest
        entry, or in the l2 norm.
    scale
        Of the noise, in integers.
    noise
        ``GAMMA`` or ``GAUSSIAN``.
    epsilon, delta
        What all integers cost together.
    unit
        What one integer stands for in what is released.
    block
        The number of integers in every block; 1 under Gaussian noise.
    """

    sensitivity: int
    scale: float
    noise: Noise
    epsilon: float
    delta: float
    unit: float = 1.0
    block: int = 1

    @property
    def variance(self) -> float:
        """Variance of the noise on what one integer stands for; that of the continuous law.

        It is in squared units of what is counted, such as records: ``unit**2`` is a factor of it.

        A block of q integers is ``R U``, U uniform in the cube and R Gamma of shape q + 1 and this
        scale: ``E R^2 / 3 = scale^2 (q + 1) (q + 2) / 3``, which is ``2 scale^2`` for one integer.
        """
        square = (self.unit * self.scale) ** 2
        if self.noise is Noise.GAUSSIAN:
            return square
        return (self.block + 1) * (self.block + 2) * square / 3.0

    @property
    def coupling(self) -> float:
        """Largest distance, in integers, to a variable of the continuous law in a common coupling.

        Raises CalibrationError for blocks of several integers, of which none was worked out.
        """
        if self.block > 1:
            raise CalibrationError("no coupling is known for noise on blocks of integers")
        return 1.0 if self.noise is Noise.GAMMA else 0.5

    def norm(self, moved: ArrayLike) -> float:
        """Length of a movement (m,) of all integers, as the ``sensitivity`` counts it."""
        vector = np.asarray(moved, dtype=np.float64)
        if self.noise is Noise.GAUSSIAN:
            return float(np.linalg.norm(vector))
        return block_norm(vector, self.block)


def block_norm(vector: Array, block: int) -> float:
    """Sum over the blocks of a vector (m,), of ``block`` entries each, of their largest size."""
    return float(np.sum(np.max(np.abs(vector.reshape(-1, block)), axis=1)))


def calibrate_integers(
    sensitivity: int, budget: Budget, noise: Noise | str = Noise.GAMMA, block: int = 1
) -> IntegerNoise:
    """The least noise for a vector of integers.

    Parameters
    ----------
    sensitivity
        How far the vector moves between neighbors, as :class:`IntegerNoise` counts it.
    budget
        What all integers may cost together.
    noise
        ``GAMMA``, also in place of box noise: ``scale = sensitivity / epsilon``, pure.
        ``GAUSSIAN``: the analytic calibration of Balle and Wang (2018).
    block
        The number of integers in every block; under Gaussian noise it must be 1.

    Raises DeclarationError for an invalid argument, CalibrationError where Gaussian noise has no
    delta or the noise leaves 64-bit integers.
    """
    shift = whole_number("sensitivity", sensitivity, at_least=1)
    kind = one_of("noise", noise, Noise).on_numbers
    epsilon = budget.epsilon
    delta = budget.delta
    size = whole_number("block", block, at_least=1)
    if size > 1 and kind is Noise.GAUSSIAN:
        raise DeclarationError(
            f"block = {size}: Gaussian noise is on single integers: take block = 1"
        )
    if kind is Noise.GAMMA:
        scale = shift / epsilon
        delta = 0.0
    elif delta < _SMALLEST_DELTA:
        raise CalibrationError(
            f"delta = {delta:g}: Gaussian noise needs a delta of at least 1e-290"
        )
    else:
        scale = shift / analytic_ratio(epsilon, delta)
    if not scale <= LARGEST_INTEGER:
        raise CalibrationError(
            f"epsilon = {epsilon:g}: the noise is out of the range of 64-bit integers"
        )
    return IntegerNoise(shift, scale * (1.0 + MARGIN), kind, epsilon, delta, block=size)


def analytic_delta(ratio: float, epsilon: float) -> float:
    """Upper bound on the delta of Gaussian noise on a number or a vector.

    Balle and Wang (2018): ``sf(c) - exp(epsilon) sf(c + ratio)``,
    ``c = epsilon / ratio - ratio / 2``; with Mills' ratio ``m = sf / pdf`` it is
    ``pdf(c) (m(c) - m(c + ratio))``, and their rounding is added.

    Parameters
    ----------
    ratio
        ``sensitivity / sigma`` > 0.
    epsilon
        Above 0.
    """
    c = epsilon / ratio - ratio / 2.0
    if c < -30.0:
        return 1.0
    here = _mills(c)
    there = _mills(c + ratio)
    density = math.exp(-0.5 * c * c) / math.sqrt(2.0 * math.pi) if c < 40.0 else 0.0
    # beyond 40 the density is below 1e-300, where its own digits end
    return density * (max(here - there, 0.0) + _ROUNDING * here) * _ROUND_UP + 1e-300


def analytic_ratio(epsilon: float, delta: float) -> float:
    """The largest ``sensitivity / sigma`` that is (epsilon, delta)-private, bisected to 1e-12.

    Parameters
    ----------
    epsilon, delta
        The budget, both above 0.

    Returns
    -------
    float
        The ratio, on the private side of the bisection.
    """
    # At c = u the survival function is at most exp(-u^2 / 2) / 2.
    u = math.sqrt(-2.0 * math.log(delta))
    low = 2.0 * epsilon / (u + math.sqrt(u * u + 2.0 * epsilon))
    high = 2.0 * low
    while analytic_delta(high, epsilon) <= delta:
        low = high
        high = 2.0 * high

    def private(ratio: float) -> bool:
        return analytic_delta(ratio, epsilon) <= delta

    return bracketed(private, low, high, 42)


def _mills(x: float) -> float:
    """Mills' ratio of the standard normal law, survival function over density."""
    return math.sqrt(0.5 * math.pi) * float(special.erfcx(x / math.sqrt(2.0)))


#: Of a release that does not count its arithmetic: it is floating point, and the noise is sampled
#: in it.
EXACT_ARITHMETIC = "exact arithmetic assumed"

#: The grid is finer than the shift by this factor, so that rounding to it costs next to nothing.
_FINER = 64.0
_SMALLEST = 1e-280
_LARGEST = 1e280


class Arithmetic(enum.StrEnum):
    """How a guarantee deals with floating-point error: ``COUNTED`` needs the extra ``secure``.

    ``ASSUMED``: exact arithmetic is assumed, and the release says so. ``AUTO``: counted where the
    extra is installed and the programs state what they are certified to.
    """

    AUTO = "auto"
    COUNTED = "counted"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class GridNoise:
    """Rounding to the grid ``2^exponent Z^p``, then independent discrete Laplace noise.

    Parameters
    ----------
    l1_sensitivity
        Largest l1 distance of two vectors between which ``epsilon`` holds, in units of the vector.
    exponent
        Of the step of the grid.
    scale
        Of the noise, in units of the vector.
    epsilon
        Pure.
    n_parameters
        The number p of entries.
    """

    l1_sensitivity: float
    exponent: int
    scale: float
    epsilon: float
    n_parameters: int


def calibrate_grid(l1_sensitivity: float, n_parameters: int, epsilon: float) -> GridNoise:
    """The smallest noise for shifts in the l1 norm: ``(shift + p 2^k) / epsilon``.

    Rounding to the grid adds at most ``p 2^k`` to the shift; the ``exponent`` k makes that a 64th
    of it.

    Parameters
    ----------
    l1_sensitivity
        The shift, in units of the vector.
    n_parameters
        The number p of entries.
    epsilon
        Pure.

    Raises
    ------
    DeclarationError
        For an invalid number.
    CalibrationError
        Where floating point gives out.
    """
    shift = public_number("l1_sensitivity", l1_sensitivity, above=0.0)
    p = whole_number("n_parameters", n_parameters, at_least=1)
    level = public_number("epsilon", epsilon, above=0.0)
    if not _SMALLEST <= shift <= _LARGEST:
        raise CalibrationError(
            f"l1_sensitivity = {shift:g} is out of floating-point range: rescale the outcome"
        )
    exponent = math.floor(math.log2(shift / (_FINER * p)))
    scale = (shift + p * math.ldexp(1.0, exponent)) / level * (1.0 + MARGIN)
    if not _SMALLEST <= scale <= _LARGEST:
        raise CalibrationError(
            f"noise scale = {scale:g} is out of floating-point range at epsilon = {level:g}: "
            "change the budget"
        )
    return GridNoise(shift, exponent, scale, level, p)


def calibrate_output(objective: Objective, budget: Budget) -> Calibration:
    """Calibrate Laplace noise for ``T = (1/n) sum w_i 2 (2 a_i - 1) (y_i - c)`` (Theorem 8).

    ``|T - T'| <= 2 M' V / n`` with ``|y - c| <= M'``, half of the ``response_bound``; pure. T is
    the treatment effect where each arm has weight n/2.

    Parameters
    ----------
    objective
        What is released, with the loss of a mean.
    budget
        Epsilon; no delta is spent.

    Returns
    -------
    Calibration

    Raises
    ------
    CalibrationError
        Where the loss is no such mean or the bound does not cover what is declared.
    DeclarationError
        For an invalid argument.
    """
    loss = objective.loss
    name = objective.name
    if not loss.is_mean:
        raise CalibrationError(
            f"Theorem 8 releases a weighted mean, and {name} is none: use plug_in_ate"
        )
    if loss.response_bound is None or loss.covariate_bound != 1.0:
        raise CalibrationError(
            f"Theorem 8: {name} states no response_bound of a mean with covariate_bound = 1"
        )
    largest = 0.5 * loss.response_bound
    movement = objective.bound.V / objective.n_samples
    sensitivity = 2.0 * largest * movement * (1.0 + MARGIN)
    facts: dict[str, Any] = {
        "theorem": "Theorem 8 (output perturbation)",
        "perturbed": Perturbed.OUTPUT,
        "sensitivity": sensitivity,
    }
    return objective.calibrated(Noise.GAMMA, budget, sensitivity / budget.epsilon, 0.0, **facts)


#: Quantiles are no farther out than this where the noise allows it, for covariates and for the
#: outcome.
_OUTERMOST = (0.02, 0.01)
#: Farther in than this they say little about the range.
_NEAREST = 0.25
#: All candidates beyond the records together are as likely as exp(-8) of one good one; at least
#: exp(-5).
_LEAD = 8.0
_LEAST_LEAD = 5.0
#: Released ranges reach to this many standard deviations of a normal column, for covariates and
#: outcomes.
_DEVIATIONS = (2.0, 3.0)


@dataclass(frozen=True)
class RangeNoise:
    """Two private choices for every column whose range is released.

    Parameters
    ----------
    epsilon
        What all choices cost together.
    each
        Epsilon of one choice.
    levels
        For every covariate and then every outcome, q of the chosen quantiles q and 1 - q; None
        where the range is public.
    factors
        Factors, at least 1, by which each range is widened about its middle.
    noise, delta, sensitivity
        Law, delta and sensitivity of a choice.
    """

    epsilon: float
    each: float
    levels: tuple[float | None, ...]
    factors: tuple[float, ...]
    noise: Noise = Noise.GAMMA
    delta: float = 0.0
    sensitivity: int = 1

    @property
    def scale(self) -> float:
        """Scale of the exponential noise of every candidate, in records."""
        return 2.0 * self.sensitivity / self.each


def calibrate_ranges(
    n_samples: int, sizes: Sequence[int | None], budget: Budget, outcomes: int = 1
) -> RangeNoise:
    """Divide epsilon over the columns, and choose the levels of their quantiles.

    Levels grow until noise hides no lead of a good candidate over those beyond all records; ranges
    are widened to what a normal column would need.

    Parameters
    ----------
    n_samples
        Number of records.
    sizes
        Numbers of candidates, for every covariate and then for every outcome; None where the range
        is public.
    budget
        Epsilon; no delta is spent.
    outcomes
        Number of outcomes.

    Returns
    -------
    RangeNoise

    Raises
    ------
    DeclarationError
        Where every range is public.
    CalibrationError
        Where epsilon is too small for the columns.
    """
    released = [size for size in sizes if size is not None]
    if not released:
        raise DeclarationError("ranges: all of them are declared: nothing is left to release")
    each = budget.epsilon / (2 * len(released)) * ROUND_DOWN
    unit = 2.0 / (n_samples * each)
    needed = budget.epsilon * unit * (math.log(max(released)) + _LEAST_LEAD) / _NEAREST
    if needed > budget.epsilon:
        raise CalibrationError(
            f"ranges of {len(released)} columns need an epsilon of {needed:.3g} at n_samples = "
            f"{n_samples}, and have {budget.epsilon:.3g}: declare some of them, choose fewer "
            "covariates or a larger share"
        )
    # Covariates are of the first kind, outcomes of the second.
    kinds = [0] * (len(sizes) - outcomes) + [1] * outcomes
    levels: list[float | None] = []
    factors: list[float] = []
    for kind, size in zip(kinds, sizes, strict=True):
        if size is None:
            levels.append(None)
            factors.append(1.0)
            continue
        level = min(max(unit * (math.log(size) + _LEAD), _OUTERMOST[kind]), _NEAREST)
        levels.append(level)
        factors.append(max(1.0, -_DEVIATIONS[kind] / float(special.ndtri(level))))
    return RangeNoise(budget.epsilon, each, tuple(levels), tuple(factors))
