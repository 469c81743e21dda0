"""Effects in a part of the population, as ratios of two private means with their intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dp2erm_cvx.calibration.sums import SHARE_BITS, GridSums
from dp2erm_cvx.plan.effect_error import NO_ERROR, NuisanceError
from dp2erm_cvx.release.interval import ScoreInterval, misses
from dp2erm_cvx.release.ratio import Fieller, quadratic_norm

_ROUND_UP = 1.0 + 1e-12


def treated_interval(
    noise: GridSums,
    released: Sequence[int],
    center: float = 0.0,
    level: float = 0.95,
    widening: float = 1.0,
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """The effect among the treated from the four ``released`` integers and public numbers alone.

    ``center`` is the public c_0 whose multiple ``c_0 a`` was taken off the score. Where the number of treated
    is within its noise the interval is infinite. ``widening`` is what the score was divided by, ``error``
    what the interval allows for beside noise and sampling.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    score, treated, _, signed = noise.means(released)
    cross, places = 0.5 * (score + signed), (0, 3)  # the mean of phi a, a = (1 + s) / 2
    spread = _spread(noise, released, share, 1.0, cross, places)
    return _inverted(noise, (score, treated), spread, 1.0, (center, level, tail, widening), error)


def overlap_interval(
    noise: GridSums,
    released: Sequence[int],
    center: float = 0.0,
    level: float = 0.95,
    widening: float = 1.0,
    error: NuisanceError = NO_ERROR,
) -> ScoreInterval:
    """The effect where either treatment is likely, from the three ``released`` integers and public numbers.

    ``center`` is the public c_0 whose multiple ``c_0 h`` was taken off the score. The standard deviation of
    ``phi - psi h`` is at most ``sqrt(E phi^2) + |psi| sqrt(E h / 2)``, because ``h <= 1/2``. Where records
    are whole ``phi h = phi / 2`` and ``h^2 = h / 2``, so that its square is
    ``E phi^2 - psi E phi + psi^2 E h / 2``. ``widening`` is what the score was divided by, ``error`` what the
    interval allows for beside noise and sampling.

    Raises DeclarationError unless ``1/2 <= level < 1``.
    """
    share, tail = misses(level)
    score, size, _ = noise.means(released)
    spread = overlap_spread(noise, released, share)
    return _inverted(noise, (score, size), spread, 0.5, (center, level, tail, widening), error)


def overlap_spread(
    noise: GridSums, released: Sequence[int], share: float
) -> tuple[Callable[[float], float], float]:
    """Of the mean of ``phi - psi h``: its deviation by psi, and the slope far out."""
    score, size, square = noise.means(released)
    if noise.law.whole:
        return _spread(noise, released, share, 0.5, 0.5 * score, (0,))
    square = min(max(square + noise.margin(0.5 * share, 2), 0.0), noise.bound**2)
    spread = math.sqrt(0.5 * min(max(size + noise.margin(0.5 * share, 1), 0.0), 0.5))
    root = math.sqrt(noise.n_samples)
    return (lambda psi: (math.sqrt(square) + abs(psi) * spread) * _ROUND_UP / root), spread / root


def _inverted(
    noise: GridSums,
    means: tuple[float, float],
    spread: tuple[Callable[[float], float], float],
    largest: float,
    public: tuple[float, float, float, float],
    error: NuisanceError,
) -> ScoreInterval:
    """The ratio of two means with its interval; ``largest`` is what the second may be.

    ``spread`` is the standard deviation of the sampling error by ratio, and its slope far out; ``public`` are
    the center, the level, the tail of either end, and what the score was divided by.
    """
    center, level, tail, widening = public
    plain, slope = spread
    size = min(max(means[1], 0.0), largest) / widening
    more = size * math.hypot(error.noise, error.sampling)

    def deviation(psi: float) -> float:
        return math.hypot(plain(psi), more)

    n, scales, bias = noise.n_samples, (noise.scales[0], noise.scales[1]), (size * error.bias, 0.0)
    test = Fieller(*means, noise.noise, scales, roundings_of(noise), deviation, slope, bias)
    low, high = test.ends(tail)
    estimate = means[0] / min(max(means[1], 1.0 / n), largest)
    unbiased = replace(test, biases=(0.0, 0.0))
    alone = (
        replace(unbiased, deviation=lambda _: size * error.noise, slope=0.0),
        replace(
            unbiased, scales=(0.0, 0.0), deviation=lambda psi: math.hypot(plain(psi), size * error.sampling)
        ),
    )
    noise_half, sampling_half = (0.5 * (end - start) for start, end in (one.ends(tail) for one in alone))
    return ScoreInterval(
        estimate=center + widening * estimate,
        # a denominator beyond its largest value is cut for the estimate alone
        low=center + widening * min(low, estimate),
        high=center + widening * max(high, estimate),
        level=float(level),
        standard_deviation=widening * math.sqrt(n) * plain(estimate),
        noise_half_width=widening * noise_half,
        sampling_half_width=widening * sampling_half,
        bias=error.bias,
    )


def roundings_of(noise: GridSums) -> tuple[float, float]:
    """What both means may be moved by beyond the continuous law of their noise."""
    coupling = noise.integers.coupling
    # a share that is no whole number is rounded to its grid
    rounded = noise.law.counts and not noise.law.whole
    step = math.ldexp(0.5, -SHARE_BITS) if rounded else 0.0
    return 0.5 * noise.step + coupling * noise.units[0], step + coupling * noise.units[1]


def _spread(
    noise: GridSums,
    released: Sequence[int],
    share: float,
    largest: float,
    cross: float,
    places: tuple[int, ...],
) -> tuple[Callable[[float], float], float]:
    """Of the mean of ``phi - psi a``, a in {0, ``largest``}: its deviation by psi, and the slope far out.

    At most, but with probability ``share``: three events miss, a third of it each. ``cross`` is the released
    mean of ``phi a``: half the sum of those at ``places``, whose noise counts in both directions.
    """
    _, size, square, *_ = noise.means(released)
    third, root = share / 3.0, math.sqrt(noise.n_samples)
    most = min(max(square + noise.margin(third, 2), 0.0), noise.bound**2) * _ROUND_UP
    rate = largest * min(max(size + noise.margin(third, 1), 0.0), largest)
    aside = 0.5 * noise.margin(0.5 * third, *places)
    norm = quadratic_norm(most, rate, (cross - aside, cross + aside))
    return (lambda psi: norm(1.0, -psi) / root), norm(0.0, 1.0) / root
