"""The interval of a private mean: sampling error and noise, from what was released (Theorem 12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp2erm_cvx.arrays import ROUND_UP
from dp2erm_cvx.calibration.base import Noise, bracketed, sum_quantile, sum_tail
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.inference.nuisances import NO_ERROR, NuisanceError

#: Share of the permitted misses that bounds of moments get. The rest is for the two tails of the
#: estimate.
_MOMENTS_SHARE = 0.1


@dataclass(frozen=True)
class ScoreInterval:
    """A private mean with its interval, in units of the outcome.

    The last four fields are infinite where they are not known, as for a ratio of risks.

    Parameters
    ----------
    estimate
        The released mean.
    low
        The lower end of the interval around it.
    high
        The upper end.
    level
        Its probability to cover the population mean of the score at the released nuisances:
        asymptotic in n, exact in the noise.
    standard_deviation
        Upper bound on that of the clipped score, from what was released; at most its bound B.
    noise_half_width
        Half width that noise alone would leave.
    sampling_half_width
        Half width that sampling alone would leave. The sum of both is at least the half width less
        the bias.
    bias
        What the half width allows for bias by released nuisances; 0 in the interval of a score's
        mean.
    """

    estimate: float
    low: float
    high: float
    level: float
    standard_deviation: float = math.inf
    noise_half_width: float = math.inf
    sampling_half_width: float = math.inf
    bias: float = math.inf


def score_interval(
    noise: GridSums,
    released: Sequence[int],
    center: float,
    level: float = 0.95,
    widening: float = 1.0,
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """The interval of Theorem 12, from released and public numbers alone.

    A tenth of ``1 - level`` pays for the standard deviation, half of it for either noise; the rest
    is the two tails of sampling error plus noise. Half a step of the score's grid is added for its
    rounding.

    Parameters
    ----------
    noise
        What was calibrated.
    released
        The two released integers.
    center
        The public c_0 that the score was measured from, in units of the outcome.
    level
        Coverage of the interval.
    widening
        What the score was divided by.
    error
        What the nuisances leave of the confounding in an effect, for which the interval is then.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    deviation = _deviation_of_mean(noise, released, level, widening)
    rounding = widening * (0.5 * noise.step + noise.coupling * noise.units[0])
    estimate = center + widening * noise.means(released)[0]
    scales = (widening * noise.scales[0],)
    return linear_interval(noise, level, estimate, (deviation, scales, rounding), error)


def score_deviation(
    noise: GridSums, released: Sequence[int], level: float, widening: float
) -> float:
    """Standard deviation of a score, as :func:`score_interval` states it.

    Parameters
    ----------
    noise, released, level, widening
        As in :func:`score_interval`.
    """
    return _deviation_of_mean(noise, released, level, widening) * math.sqrt(noise.n_samples)


def _deviation_of_mean(
    noise: GridSums, released: Sequence[int], level: float, widening: float
) -> float:
    """At least the standard deviation of the mean of the score."""
    moments_share, _ = misses(level)
    return widening * _deviation(noise, released, moments_share) / math.sqrt(noise.n_samples)


def linear_interval(
    noise: GridSums,
    level: float,
    estimate: float,
    parts: tuple[float, Sequence[float], float],
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """Interval of a sum of sampling error, noise, and what nuisances leave.

    Its half width less the rounding is the q with ``P(N + L > q - b) + P(N + L > q + b) = 2 tail``:
    b the bias, N normal with the deviations of sampling and nuisances, L the noise.

    Parameters
    ----------
    noise
        Its law and the number of records.
    level
        Coverage of the interval.
    estimate
        The middle of the interval, in units of the outcome.
    parts
        The standard deviation of sampling, the scales of the noise, and what rounding adds.
    error
        What the nuisances leave of the confounding.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    _, tail = misses(level)
    deviation, scales, rounding = parts
    sampling = math.hypot(deviation, error.sampling)
    normal = math.hypot(sampling, error.noise)
    half_width = biased_quantile(noise.noise, tail, error.bias, normal, *scales) + rounding
    return ScoreInterval(
        estimate=estimate,
        low=estimate - half_width,
        high=estimate + half_width,
        level=float(level),
        standard_deviation=deviation * math.sqrt(noise.n_samples),
        noise_half_width=sum_quantile(noise.noise, tail, error.noise, *scales) + rounding,
        sampling_half_width=sum_quantile(noise.noise, tail, sampling),
        bias=error.bias,
    )


def biased_quantile(
    noise: Noise, tail: float, bias: float, deviation: float, *scales: float
) -> float:
    """The q with ``P(X > q - bias) + P(X > q + bias) = 2 tail``, rounded up.

    Parameters
    ----------
    noise
        Law of the noise in the symmetric sum X.
    tail
        Half of the probability to miss.
    bias
        What X may be off, in either direction.
    deviation
        Standard deviation of the normal part of X.
    scales
        Those of the noises in X.
    """
    largest = bias + sum_quantile(noise, tail, deviation, *scales)

    def suffices(q: float) -> bool:
        near_tail = sum_tail(noise, q - bias, deviation, *scales)
        far_tail = sum_tail(noise, q + bias, deviation, *scales)
        return near_tail + far_tail <= 2.0 * tail

    return bracketed(suffices, largest * ROUND_UP)


def misses(level: float) -> tuple[float, float]:
    """Parts of ``1 - level``: what bounds of moments may miss, and each tail of the estimate.

    Raises
    ------
    DeclarationError
        Unless ``1/2 <= level < 1``.
    """
    missed = 1.0 - public_number("level", level, at_least=0.5)
    if missed <= 0.0:
        raise DeclarationError(f"level = {brief(level)}: must be less than 1")
    return _MOMENTS_SHARE * missed, 0.5 * (1.0 - _MOMENTS_SHARE) * missed


def _deviation(noise: GridSums, released: Sequence[int], share: float) -> float:
    """At least the sample standard deviation of the clipped score, but with probability ``share``.

    The noise lowers the second moment by more than its margin, and moves the mean by more than its
    own either way, with half of that each.
    """
    mean, second_moment = noise.means(released)
    least_mean = max(abs(mean) - noise.margin(0.25 * share, 0), 0.0)
    largest_moment = second_moment + noise.margin(0.5 * share, 1)
    variance = (largest_moment - least_mean**2) * ROUND_UP
    return math.sqrt(min(max(variance, 0.0), noise.bound**2))


def e_value(low: float, high: float | None = None) -> float:
    """``RR + sqrt(RR (RR - 1))`` of a risk ratio, or of its inverse if that is larger.

    The least risk ratio that an unmeasured confounder has with both treatment and outcome, given
    covariates, if it alone explains the ratio ``low``; with ``high``, the end of that interval
    nearer to 1, or 1 in it. VanderWeele and Ding, Ann. Intern. Med. 167 (2017) 268.

    Parameters
    ----------
    low
        The ratio, or the lower end of its interval.
    high
        The upper end of the interval; None for a ratio by itself.

    Raises
    ------
    DeclarationError
        Unless the ratio is above 0.
    """
    ratio = low if high is None else min(max(1.0, low), high)
    if not ratio > 0.0:
        raise DeclarationError(f"ratio = {brief(ratio)}: must be above 0")
    larger = max(ratio, 1.0 / ratio)
    return larger + math.sqrt(larger * (larger - 1.0))
