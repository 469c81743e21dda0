"""The interval of a private mean: sampling error and noise, from what was released (Theorem 12)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from dp2erm_cvx.calibration import Noise, ScoreNoise
from dp2erm_cvx.calibration.sums import laplace_sum_quantile
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

#: Share of the permitted misses that the standard deviation of the score gets.
_DEVIATION_SHARE = 0.1
#: Noise differs from its continuous law by at most this many steps of the integers, in a common coupling.
_COUPLING = {Noise.GAMMA: 1.0, Noise.GAUSSIAN: 0.5}
_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class ScoreInterval:
    """A private mean with its interval, in units of the outcome.

    Attributes
    ----------
    estimate, low, high
        The released mean and the ends of the interval around it.
    level
        Its probability to cover the population mean of the score at the released nuisances, asymptotically
        in n; exact in the noise.
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
    noise: ScoreNoise, released: tuple[int, int], center: float, level: float = 0.95
) -> ScoreInterval:
    """The interval of Theorem 12 from the two ``released`` integers and public numbers alone.

    ``center`` is the public c_0 that the score was measured from. A tenth of ``1 - level`` pays for the
    standard deviation, half of it for either noise; the rest is the two tails of sampling error plus noise.
    Half a step of the score's grid is added for its rounding.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    wanted = public_number("level", level, at_least=0.5)
    share = 1.0 - wanted
    if share <= 0.0:
        raise DeclarationError(f"level = {level:g}: must be less than 1")
    mean = released[0] * noise.mean_step
    deviation = _standard_deviation(noise, mean, released[1] * noise.second_moment_step, share)
    sampling = deviation / math.sqrt(noise.n_samples)
    tail = 0.5 * share * (1.0 - _DEVIATION_SHARE)
    rounding = 0.5 * noise.step + _COUPLING[noise.noise] * noise.mean_step
    half = (_quantile(noise, sampling, noise.mean_scale, tail) + rounding) * _ROUND_UP
    estimate = center + mean
    return ScoreInterval(
        estimate=estimate,
        low=estimate - half,
        high=estimate + half,
        level=wanted,
        standard_deviation=deviation,
        noise_half_width=(_quantile(noise, 0.0, noise.mean_scale, tail) + rounding) * _ROUND_UP,
        sampling_half_width=_quantile(noise, sampling, 0.0, tail),
    )


def _quantile(noise: ScoreNoise, sampling: float, scale: float, tail: float) -> float:
    """What sampling error plus noise of the mean exceeds with probability ``tail``."""
    if noise.noise is Noise.GAMMA and scale > 0.0:
        return laplace_sum_quantile(sampling, scale, tail)
    return -float(special.ndtri(tail)) * math.hypot(sampling, scale)


def _standard_deviation(noise: ScoreNoise, mean: float, second_moment: float, share: float) -> float:
    """At least the sample standard deviation of the clipped score, but with a tenth of the ``share``.

    The noise lowers the second moment by more than its margin, and moves the mean by more than its own
    either way, with half of that each.
    """
    tail = 0.5 * _DEVIATION_SHARE * share
    coupling = _COUPLING[noise.noise]
    above = _quantile(noise, 0.0, noise.second_moment_scale, tail) + coupling * noise.second_moment_step
    aside = _quantile(noise, 0.0, noise.mean_scale, 0.5 * tail) + coupling * noise.mean_step
    variance = second_moment + above - max(abs(mean) - aside, 0.0) ** 2
    bound = noise.bound
    return math.sqrt(min(max(variance * _ROUND_UP, 0.0), bound * bound))
