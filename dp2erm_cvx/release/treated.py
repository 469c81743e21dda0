"""The effect among the treated as a ratio of two private means, with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dp2erm_cvx.calibration import TreatedNoise
from dp2erm_cvx.release.interval import ScoreInterval, misses
from dp2erm_cvx.release.ratio import Fieller, quadratic_norm

_ROUND_UP = 1.0 + 1e-12


def treated_interval(
    noise: TreatedNoise, released: Sequence[int], center: float = 0.0, level: float = 0.95
) -> ScoreInterval:
    """The effect among the treated from the four ``released`` integers and public numbers alone.

    ``center`` is the public c_0 whose multiple ``c_0 a`` was taken off the score. Where the number of treated
    is within its noise the interval is infinite.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    score, treated, _, _ = noise.means(released)
    norm = _norm(noise, released, share)
    n = noise.n_samples
    coupling = noise.integers.coupling
    test = Fieller(
        score,
        treated,
        noise.noise,
        (noise.scales[0], noise.scales[1]),
        (0.5 * noise.step + coupling * noise.units[0], coupling * noise.units[1]),
        lambda psi: norm(1.0, -psi) / math.sqrt(n),
        norm(0.0, 1.0) / math.sqrt(n),
    )
    low, high = test.ends(tail)
    estimate = score / min(max(treated, 1.0 / n), 1.0)
    alone = replace(test, deviation=lambda _: 0.0, slope=0.0), replace(test, scales=(0.0, 0.0))
    noise_half, sampling_half = (0.5 * (end - start) for start, end in (one.ends(tail) for one in alone))
    return ScoreInterval(
        estimate=center + estimate,
        low=center + low,
        high=center + high,
        level=float(level),
        standard_deviation=norm(1.0, -estimate),
        noise_half_width=noise_half,
        sampling_half_width=sampling_half,
    )


def _norm(noise: TreatedNoise, released: Sequence[int], share: float) -> Callable[[float, float], float]:
    """Root of the mean of ``(u phi + v a)^2`` at most, but with probability ``share``.

    Three events miss, a third of it each; the noise of phi a, ``a = (1 + s) / 2``, in both directions.
    """
    score, treated, square, signed = noise.means(released)
    third = share / 3.0
    most = min(max(square + noise.margin(third, 2), 0.0), noise.bound**2) * _ROUND_UP
    rate = min(max(treated + noise.margin(third, 1), 0.0), 1.0)
    cross, aside = 0.5 * (score + signed), 0.5 * noise.margin(0.5 * third, 0, 3)
    return quadratic_norm(most, rate, (cross - aside, cross + aside))
