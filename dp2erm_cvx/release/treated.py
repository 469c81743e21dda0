"""Effects in a part of the population, as ratios of two private means with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dp2erm_cvx.calibration import OverlapNoise, TreatedNoise
from dp2erm_cvx.calibration.overlap import SHARE_BITS
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
    spread = (lambda psi: norm(1.0, -psi) / math.sqrt(n)), norm(0.0, 1.0) / math.sqrt(n)
    return _inverted(noise, (score, treated), spread, 1.0, (center, level, tail))


def overlap_interval(
    noise: OverlapNoise, released: Sequence[int], center: float = 0.0, level: float = 0.95
) -> ScoreInterval:
    """The effect where either treatment is likely, from the three ``released`` integers and public numbers.

    ``center`` is the public c_0 whose multiple ``c_0 h`` was taken off the score. The standard deviation of
    ``phi - psi h`` is at most ``sqrt(E phi^2) + |psi| sqrt(E h / 2)``, because ``h <= 1/2``.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    score, size, square = noise.means(released)
    square = min(max(square + noise.margin(0.5 * share, 2), 0.0), noise.bound**2)
    spread = math.sqrt(0.5 * min(max(size + noise.margin(0.5 * share, 1), 0.0), 0.5))
    root = math.sqrt(noise.n_samples)

    def deviation(psi: float) -> float:
        return (math.sqrt(square) + abs(psi) * spread) * _ROUND_UP / root

    return _inverted(noise, (score, size), (deviation, spread / root), 0.5, (center, level, tail))


def _inverted(
    noise: TreatedNoise | OverlapNoise,
    means: tuple[float, float],
    spread: tuple[Callable[[float], float], float],
    largest: float,
    public: tuple[float, float, float],
) -> ScoreInterval:
    """The ratio of two means with its interval; ``largest`` is what the second may be.

    ``spread`` is the standard deviation of the sampling error by ratio, and its slope far out; ``public`` are
    the center, the level and the tail of either end.
    """
    center, level, tail = public
    deviation, slope = spread
    n, coupling = noise.n_samples, noise.integers.coupling
    # a share that is no whole number is rounded to its grid
    step = 0.0 if largest == 1.0 else math.ldexp(0.5, -SHARE_BITS)
    roundings = (0.5 * noise.step + coupling * noise.units[0], step + coupling * noise.units[1])
    scales = (noise.scales[0], noise.scales[1])
    test = Fieller(*means, noise.noise, scales, roundings, deviation, slope)
    low, high = test.ends(tail)
    estimate = means[0] / min(max(means[1], 1.0 / n), largest)
    alone = replace(test, deviation=lambda _: 0.0, slope=0.0), replace(test, scales=(0.0, 0.0))
    noise_half, sampling_half = (0.5 * (end - start) for start, end in (one.ends(tail) for one in alone))
    return ScoreInterval(
        estimate=center + estimate,
        # a denominator beyond its largest value is cut for the estimate alone
        low=center + min(low, estimate),
        high=center + max(high, estimate),
        level=float(level),
        standard_deviation=math.sqrt(n) * deviation(estimate),
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
