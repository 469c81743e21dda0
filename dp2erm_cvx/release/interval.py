"""The interval of a private mean: sampling error and noise, from what was released (Theorem 12)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp2erm_cvx.calibration import ScoreNoise
from dp2erm_cvx.calibration.sums import sum_quantile
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.public import public_number

#: Share of the permitted misses that bounds of moments get; the rest is for the two tails of the estimate.
_MOMENTS_SHARE = 0.1
_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class ScoreInterval:
    """A private mean with its interval, in units of the outcome.

    Attributes
    ----------
    estimate, low, high
        The released mean and the ends of the interval around it.
    level
        Its probability to cover the population mean of the score at the released nuisances: asymptotic in n,
        exact in the noise.
    standard_deviation
        Upper bound on that of the clipped score, from what was released; at most its bound B.
    noise_half_width, sampling_half_width
        Half widths that noise alone and sampling alone would leave. Their sum is at least the half width.
    """

    estimate: float
    low: float
    high: float
    level: float
    standard_deviation: float
    noise_half_width: float
    sampling_half_width: float


def score_interval(
    noise: ScoreNoise, released: Sequence[int], center: float, level: float = 0.95
) -> ScoreInterval:
    """The interval of Theorem 12 from the two ``released`` integers and public numbers alone.

    ``center`` is the public c_0 that the score was measured from. A tenth of ``1 - level`` pays for the
    standard deviation, half of it for either noise; the rest is the two tails of sampling error plus noise.
    Half a step of the score's grid is added for its rounding.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    mean, _ = noise.means(released)
    deviation = _deviation(noise, released, share)
    sampling, scale = deviation / math.sqrt(noise.n_samples), noise.scales[0]
    rounding = 0.5 * noise.step + noise.integers.coupling * noise.units[0]
    half = (sum_quantile(noise.noise, tail, sampling, scale) + rounding) * _ROUND_UP
    return ScoreInterval(
        estimate=center + mean,
        low=center + mean - half,
        high=center + mean + half,
        level=float(level),
        standard_deviation=deviation,
        noise_half_width=(sum_quantile(noise.noise, tail, 0.0, scale) + rounding) * _ROUND_UP,
        sampling_half_width=sum_quantile(noise.noise, tail, sampling),
    )


def misses(level: float) -> tuple[float, float]:
    """Of ``1 - level``: the part that bounds of the moments may miss, and each of two tails of the rest.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share = 1.0 - public_number("level", level, at_least=0.5)
    if share <= 0.0:
        raise DeclarationError(f"level = {shown(level)}: must be less than 1")
    return _MOMENTS_SHARE * share, 0.5 * (1.0 - _MOMENTS_SHARE) * share


def _deviation(noise: ScoreNoise, released: Sequence[int], share: float) -> float:
    """At least the sample standard deviation of the clipped score, but with probability ``share``.

    The noise lowers the second moment by more than its margin, and moves the mean by more than its own
    either way, with half of that each.
    """
    mean, second_moment = noise.means(released)
    least = max(abs(mean) - noise.margin(0.25 * share, 0), 0.0)
    variance = (second_moment + noise.margin(0.5 * share, 1) - least**2) * _ROUND_UP
    return math.sqrt(min(max(variance, 0.0), noise.bound**2))
