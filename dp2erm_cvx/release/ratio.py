"""Interval of a ratio of two private means, by inverting tests of every ratio (Fieller 1954)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.sums import bracketed, sum_tail

_ROUND_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class RatioInterval:
    """A ratio of private means with its interval; an end may be infinite.

    Attributes
    ----------
    estimate, low, high
        The ratio of the released means and the ends of the interval.
    level
        Its probability to cover the ratio of the population means of the scores at the released nuisances:
        asymptotic in n, exact in the noise.
    """

    estimate: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class Fieller:
    """Released means A and D whose ratio of population means is rho: ``A - rho D`` has mean 0.

    Attributes
    ----------
    numerator, denominator
        A and D.
    noise
        Law of the two independent noises.
    scales, roundings
        Of the noise of A and D; what each may be moved by beyond its continuous law.
    deviation
        Convex in rho: at least the standard deviation of the sampling error of ``A - rho D``.
    slope
        Limit of ``deviation(rho) / |rho|`` at either infinity.
    biases
        What the means of A and of D may be off.
    """

    numerator: float
    denominator: float
    noise: Noise
    scales: tuple[float, float]
    roundings: tuple[float, float]
    deviation: Callable[[float], float]
    slope: float
    biases: tuple[float, float] = (0.0, 0.0)

    def ends(self, tail: float) -> tuple[float, float]:
        """The least and the largest rho that no test rejects, each test missing by ``tail`` either way.

        A test on the left rejects where ``A - rho D`` exceeds a quantile that is convex in rho (page "Private
        effects"). Where the denominator is significant it rejects far out, hence everywhere from the end on.
        Else both ends are infinite.
        """
        if not self._rejected(self.denominator, self.slope, 0.0, 1.0, tail):
            return -math.inf, math.inf
        middle = self.numerator / self.denominator
        return self._end(middle, -1.0, tail), self._end(middle, 1.0, tail)

    def _end(self, middle: float, side: float, tail: float) -> float:
        def rejects(rho: float) -> bool:
            gap = side * (rho * self.denominator - self.numerator)
            return self._rejected(gap, self.deviation(rho), 1.0, abs(rho), tail)

        reach = self.deviation(middle) + self.biases[0] + self.scales[0]
        reach += abs(middle) * (self.scales[1] + self.biases[1])
        reach = max(reach / self.denominator, 1e-300)
        while not rejects(middle + side * reach):
            reach *= 2.0
            if math.isinf(reach):
                return side * math.inf
        return bracketed(rejects, middle + side * reach, middle)

    def _rejected(self, gap: float, deviation: float, first: float, second: float, tail: float) -> bool:
        left = gap - first * self.roundings[0] - second * self.roundings[1]
        if not left > 0.0:
            return False
        scales = first * self.scales[0], second * self.scales[1]
        bias = first * self.biases[0] + second * self.biases[1]
        ends = (
            sum_tail(self.noise, one, deviation * _ROUND_UP, *scales) for one in (left - bias, left + bias)
        )
        return 0.5 * sum(ends) < tail


def quadratic_norm(
    first: float, second: float, cross: tuple[float, float]
) -> Callable[[float, float], float]:
    """``(u, v) -> sqrt(u^2 E x^2 + v^2 E y^2 + 2 u v E x y)`` at the worst moments within their bounds.

    ``first`` and ``second`` are upper bounds of ``E x^2`` and ``E y^2``, ``cross`` bounds of ``E x y`` from
    below and above. They are clipped by the inequality of Cauchy and Schwarz, so that this is the larger of
    two norms of (u, v).
    """
    most = math.sqrt(first * second)
    low, high = (min(max(value, -most), most) for value in cross)

    def norm(u: float, v: float) -> float:
        product = 2.0 * u * v
        return math.sqrt(max(u * u * first + v * v * second + max(product * low, product * high), 0.0))

    return norm
