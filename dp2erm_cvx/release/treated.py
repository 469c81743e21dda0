"""The effect among the treated as a ratio of two private means, with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dp2erm_cvx.calibration import TreatedNoise
from dp2erm_cvx.release.interval import ScoreInterval, misses
from dp2erm_cvx.release.ratio import Fieller

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
    square, up, down, rate = _moments(noise, released, share)
    n = noise.n_samples

    def deviation(psi: float) -> float:
        """Of ``phi - psi a`` over the root of n, from bounds of its second moment."""
        cross = up if psi < 0.0 else down
        return math.sqrt(max(square - 2.0 * psi * cross + psi * psi * rate, 0.0) * _ROUND_UP / n)

    coupling = noise.integers.coupling
    test = Fieller(
        score,
        treated,
        noise.noise,
        (noise.scales[0], noise.scales[1]),
        (0.5 * noise.step + coupling * noise.units[0], coupling * noise.units[1]),
        deviation,
        math.sqrt(rate / n),
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
        standard_deviation=math.sqrt(n) * deviation(estimate),
        noise_half_width=noise_half,
        sampling_half_width=sampling_half,
    )


def _moments(noise: TreatedNoise, released: Sequence[int], share: float) -> tuple[float, float, float, float]:
    """Bounds of the mean of phi^2, of phi a from above and from below, and of a, all but with ``share``.

    Three events miss, a third of it each; the noise of phi a, ``a = (1 + s) / 2``, in both directions. The
    bounds of phi a respect the inequality of Cauchy and Schwarz, which makes the deviation convex.
    """
    score, treated, square, signed = noise.means(released)
    third = share / 3.0
    square = min(max(square + noise.margin(third, 2), 0.0), noise.bound**2)
    rate = min(max(treated + noise.margin(third, 1), 0.0), 1.0)
    cross, aside = 0.5 * (score + signed), 0.5 * noise.margin(0.5 * third, 0, 3)
    most = math.sqrt(square * rate)
    return square, min(max(cross + aside, -most), most), min(max(cross - aside, -most), most), rate
